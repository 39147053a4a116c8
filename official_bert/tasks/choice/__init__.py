"""Multiple choice: the tasks of run_swag.py, SWAG and CODAH."""
