"""`kafka-transactions`: tables and failures."""
