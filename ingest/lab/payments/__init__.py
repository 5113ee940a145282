"""The demo of money: payments go through outbox, Kafka, database sink, API and lake, with kills, beside a chain written by hand."""
