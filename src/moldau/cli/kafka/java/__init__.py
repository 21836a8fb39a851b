"""How Java prints errors and orders maps, so that output is the same as that of Apache Kafka's tools."""
