"""The history lake: from the events of a queue to tables, a report and back."""
