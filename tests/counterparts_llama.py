"""llama.cpp's server for tests, run by its path in place of `_local_server.py`: with a chat template that knows tools.

The embedded model's own template knows none, and then the server drops the tools of a request. What follows from the
template alone, the grammar of a call and its reading, is the server's work and not the model's.
"""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path
from typing import Any

SERVER = Path(__file__).resolve().parent.parent / "trio_agent" / "providers" / "_local_server.py"
TEMPLATE = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- 'You have these tools:\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
    {{- '\\n</tools>\\nCall one like this:\\n<tool_call>\\n{"name": "its name", "arguments": {}}\\n</tool_call>' }}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role != 'system' %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def main() -> None:
    xllamacpp: Any = importlib.import_module("xllamacpp")
    plain = xllamacpp.CommonParams

    def with_template() -> Any:
        params = plain()
        params.use_jinja = True
        params.chat_template = TEMPLATE
        return params

    xllamacpp.CommonParams = with_template
    runpy.run_path(str(SERVER), run_name="__main__")


if __name__ == "__main__":
    main()
