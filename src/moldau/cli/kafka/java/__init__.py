"""How Java prints errors, dates and numbers, so that output is that of Apache Kafka's tools."""
