"""`moldau pipeline`: write, check, run and watch data pipelines on Spark."""
