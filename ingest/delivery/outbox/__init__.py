"""The transactional outbox: an application stores an event with its business row, and a relay publishes it. It processes no event."""
