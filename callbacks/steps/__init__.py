"""Steps of tables about one family: what a table calls after the attacks of a cell, with its data and its model."""
