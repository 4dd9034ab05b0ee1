# SPDX-License-Identifier: Apache-2.0
"""The script of docs/from_0_1.md makes of the page's first program its second one, and of that nothing else; it prints
what it leaves: check_from_0_1.py ROOT."""
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
page = (root / "docs/from_0_1.md").read_text(encoding="utf-8")
before = page.split("```text\n")[1].split("```")[0]
after = page.split("```cpp program\n")[1].split("```")[0]
left = "static_assert(std::is_same_v<E, sk::mpi::Engine>);"
# Lines of their own. The file that has `sk::` and no alias has it from a header.
LINES = {
    "#include <shardkit/backend/threads/engine.hpp>": "#include <shardkit/backend/threads/run.hpp>",
    "#include <shardkit/comm/all_reduce.hpp>": "#include <shardkit/verbs/all_reduce.hpp>",
    "#include <shardkit/optim/adamw.hpp>": "#include <shardkit/optim/adamw.hpp>",
    "#include <shardkit/shardkit.hpp>\nsk::verify_replicas(model);":
        "#include <shardkit/shardkit.hpp>\n#include <shardkit/verify.hpp>\nsk::verify_replicas(model);",
    "    using Engine = sk::EngineOf<decltype(rank)>;\n": "",
    "print(sk::EngineOf<decltype(rank)>::name);": "print(rank.world().engine_name());",
    "const sk::mpi::Communicator<> comm = sk::mpi::Communicator<>(world);": "const sk::Communicator comm = world.communicator();",
    "sk::barrier(world, sk::InlineStream{});": "sk::barrier(world, sk::Stream{});",
    "static_assert(sk::engine::ReduceScatters<C, sk::bf16, float>);  // sums\n": "",
    "Trainer::Trainer(sk::Context<Engine>& rank) {}": "Trainer::Trainer(sk::Rank& rank) {}",
    "const auto& grid = layer.context().grid();": "const auto& grid = layer.rank().grid();",
    "sk::AdamW<Engine, P, Format> optimizer{model, sk::states_in<Format>, {.epsilon = 1}};":
        "sk::AdamW optimizer{model, sk::states_in<Format>, {.epsilon = 1}};",
    "sk::AdamW<Engine, P, Format> optimizer{model};": "sk::AdamW<Format> optimizer{model};",
    "struct Own : sk::rules::RuleOptimizer<OwnRule, Engine, P> {};": "struct Own : sk::rules::RuleOptimizer<OwnRule> {};",
}
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "trainer.cpp"
    for text, expected in ((before, after), (after, after), (left, left), *LINES.items()):
        path.write_text(text, encoding="utf-8")
        said = subprocess.run([root / "scripts/from_0_1", path], check=True, capture_output=True, text=True).stdout
        assert path.read_text(encoding="utf-8") == expected, path.read_text(encoding="utf-8")
        assert said == (f"{path}:1: {left}\n" if text == left else ""), said
