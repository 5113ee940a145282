"""Demos and test tools that production never loads: embedded broker, demo, chaos, oracle, delivery modes, samples, fault proxy."""
