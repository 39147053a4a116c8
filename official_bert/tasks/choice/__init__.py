"""Multiple choice: run_swag.py, SWAG and CODAH."""
