"""`trio-agent models`: what a service offers, or what is on this machine.

Here lives the command. Asking is the providers' business, and whatever goes wrong becomes one line in
`trio_agent.__main__`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import trio

from ._arguments import Parser, ServiceOptions, add_service_options, options_from
from ._setup import open_service
from ._usage import complain, one_line


def models(argv: Sequence[str]) -> int:
    """Print a model a line. Gives 0, or 1 where there is none. Raises `UsageError`, and what keeps one from asking."""
    parsed = _parser().parse_args(argv)
    options = options_from(ServiceOptions, parsed)
    names = _embedded() if options.provider == "local" else trio.run(_offered, options)
    for name in names:
        line = json.dumps({"model": name, "provider": options.provider}) if parsed.json else one_line(name)
        sys.stdout.write(f"{line}\n")
    if not names:
        complain("error", "the service lists no models")
        return 1
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="trio-agent models",
        description="List the models that a service offers, one per line, in its order; with local, the embedded one."
        " Exit codes: 0, 1 an error or no model, 2 usage.",
    )
    add_service_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per model, and nothing else")
    parser.add_argument("--debug", action="store_true", help="print the traceback of an error too")
    return parser


def _embedded() -> tuple[str, ...]:
    from ..providers._local_model import embedded_model

    return (embedded_model().stem,)


async def _offered(options: ServiceOptions) -> tuple[str, ...]:
    async with open_service(options) as provider:
        return await provider.models()
