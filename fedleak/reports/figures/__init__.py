"""Figures of a report, one file per kind; `report_figures` chooses those that a run has the data for."""
