"""Steps that draw batches and compute nothing, for tests of what a training does beside its
updates.
"""

from official_bert.training.trainer import Trainer


def count_steps(trainer: Trainer, objective, num_batches: int):
    """Returns what stands for the compiled steps of a trainer; a test sets it as
    `Trainer.step_function`.
    """

    def run_steps(batches, num_steps):
        for _ in range(num_steps * num_batches):
            batches.next_batch()
        trainer.optimizer.global_step.assign_add(num_steps)
        return dict.fromkeys((*objective.sum_names, "gradient_norm", "tokens"), 0.0) | {
            "updates": float(num_steps)
        }

    return run_steps
