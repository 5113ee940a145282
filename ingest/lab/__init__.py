"""What demonstrates and proves the product, and what production never loads: embedded broker, demo, chaos, oracle, samples, fault proxy."""
