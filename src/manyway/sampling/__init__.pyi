from .embedded import load_glyphs as load_glyphs
from .features import FeatureSet as FeatureSet
from .sampling import sample_groups as sample_groups
from .sampling import sample_tasks as sample_tasks
from .spec import DEFAULTS as DEFAULTS
from .spec import Reviewer as Reviewer
from .spec import TaskSpec as TaskSpec
from .spec import task_fields as task_fields
