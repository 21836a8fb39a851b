"""How Java prints errors, dates and numbers and orders maps, so that output is that of Apache Kafka's tools."""
