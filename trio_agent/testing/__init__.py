"""For those who test their own agents, tools and hooks, or another kernel. Public names, re-exported; no code."""

from ._conductor import Choose as Choose
from ._conductor import Conductor as Conductor
from ._conductor import Exploration as Exploration
from ._conductor import explore as explore
from ._judge import LifecycleViolation as LifecycleViolation
from ._judge import TraceChecker as TraceChecker
from ._judge import check_trace as check_trace
from ._judge_walk import Violation as Violation
from ._render import render as render
from ._scripted import Reply as Reply
from ._scripted import ScriptedProvider as ScriptedProvider
from ._scripted import Step as Step
from ._scripted import call as call
from ._scripted import do as do
from ._scripted import finish as finish
from ._scripted import sleep as sleep
from ._scripted import stall as stall
from ._scripted import text as text
from ._scripted import thinking as thinking
from ._scripted import usage as usage
from ._scripted import wait as wait
