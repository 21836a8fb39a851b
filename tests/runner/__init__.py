"""How `make test` runs all tests: four runs side by side, their progress, and what they cost."""
