"""Messages of federated trees as arrays: a closed reader of XGBoost's two formats, without XGBoost."""

from fedleak_recorder.trees.forest import FIELDS as FIELDS
from fedleak_recorder.trees.forest import PADDING as PADDING
from fedleak_recorder.trees.forest import Forest as Forest
from fedleak_recorder.trees.xgboost import read_forest as read_forest
from fedleak_recorder.trees.xgboost import read_values as read_values
