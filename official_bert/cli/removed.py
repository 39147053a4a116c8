"""The flags of earlier versions, and one of the original's hub variant: what replaces them.

A script that has no such flag ends with the sentence of this table when it is given; some scripts keep some of them.
CHANGELOG.md lists them, too.
"""

REMOVED = {
    "bert_hub_module_handle": "Hub modules are not supported; leave this flag out and give the model's files with "
    "--vocab_file, --bert_config_file and --init_checkpoint",
    "skip_corrupt_records": "a corrupt record ends the run with its file; make that file anew with "
    "create_pretraining_data.py, or leave it out of --input_file",
    "measure_peak_flops": "give the devices' peak by their data sheet with --peak_flops",
    "num_parallel": "the steps of an experiment run one after the other",
    **dict.fromkeys(("estimate", "utilisation"), "docs/reports/experiments.md has what the experiments cost"),
    "experiments_dir": "give a .toml file of your own, or change the files in the folder experiments",
    "search_learning_rates": "write --search=learning_rate=5e-5,3e-5",
    "search_batch_sizes": "write --search=train_batch_size=16,32",
    "search_epochs": "write --search=num_train_epochs=2,3",
    "search_restarts": "write --search=restarts=2",
    "eval_every_steps": "write --eval_every=500",
    "eval_every_epochs": "write --eval_every=0.5epochs",
    **{
        name: f"write --columns={setting}, its settings behind each other with commas"
        for name, setting in {
            "text_a_column": "text_a=text",
            "text_b_column": "text_b=other",
            "label_column": "label=kind",
            "has_header": "header=false",
            "label_separator": "separator=,",
        }.items()
    },
    "multi_label": "write --label_type=multi",
    "regression": "write --label_type=score",
    "xnli_language": "write the language behind the task's name, --task_name=XNLI-de",
    "glue_submission_dir": "the folder glue_submission in --output_dir has the files for the tasks of GLUE",
    "num_gpus": "write --distribution_strategy=mirrored --num_devices=4",
    "num_logical_cpus": "write --distribution_strategy=mirrored --num_devices=2; without a GPU it splits the CPU",
    **dict.fromkeys(
        ("worker_hosts", "task_index"),
        'set the environment variable TF_CONFIG to {"cluster": {"worker": ["host:port", ...]}, "task": {"type": '
        '"worker", "index": 0}}',
    ),
    **dict.fromkeys(("mask_token_rate", "random_token_rate"), "write both as --mask_rates=0.8,0.1"),
    "mask_tokens": "write --dynamic_masking for records without masks",
    "use_next_sentence_loss": "write --nouse_next_sentence to learn masked words alone",
    "resume": "the files that a killed run has finished are always kept if the text and the flags are the same",
    "strict": "iconv -f utf-8 -t utf-8 FILE > /dev/null finds bytes that are not UTF-8",
    "max_words": "the 500,000 commonest words are learnt from",
    "max_records": "the statistics are of all records; give fewer files",
    "histogram_file": "write --plot_file",
    "num_processes": "write --num_workers",
    "triviaqa_file": "write --input_file",
    "evidence_dir": "write --data_dir",
    "max_document_words": "documents are cut to 400 words, as in the paper; triviaqa_to_squad in Python takes another",
    "early_stopping_patience": "write --eval_every=500,patience=2",
    "export_dir": "run export_saved_model.py --model=OUTPUT_DIR --export_dir=EXPORT_DIR after the training",
    "export_text": "run export_saved_model.py --model=OUTPUT_DIR --export_dir=EXPORT_DIR --export_text afterwards",
    "export_dtype": "write --dtype=bfloat16 for export_saved_model.py",
    **dict.fromkeys(("input_checkpoint", "model_dir"), "write --model"),
    "model_class": "write --task_name=text, ner or swag for a task of that kind",
    "hidden_act": "give a configuration with another hidden_act as --bert_config_file",
    "pin_cpus": "a command behind -- may begin with taskset -c 0-7",
    "strip_optimizer": "write --output_format=tf1_weights",
    "shuffle_files_each_pass": "write --file_order=each_pass",
    "shard_input_files": "write --file_order=own",
    "length_aware_batches": "a batch is always padded to its longest example, and on a TPU to --max_seq_length",
    "adam_bias_correction": "write --optimizer_type=adamw_bias_correction, or lamb, which always corrects it",
    "compression": "name an --output_file that ends in .gz",
    "vectors": "write --pooling=pooler or --pooling=none",
    "training_flags": "write the flags behind --, as in run_experiment.py table1 -- --dtype=bfloat16",
    "encoder": "write --model",
    "dry_run": "write --only=commands",
    "report": "write --only=table",
    "threshold_file": "write --null_score_diff_threshold=auto:FILE",
    "bilstm_size": "the BiLSTM has 768 units, as in the paper; BertFeatureTagger in Python takes another number",
    "min_frequency": "a piece of several characters occurs at least twice",
}
