import argparse
#: if micro
import contextlib
#: end
import json
import math
import os
import platform
import random
import struct
import sys
import time

import torch
#: if graph
import torch.nn.functional as F
#: end
from torch import nn
