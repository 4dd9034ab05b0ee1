// SPDX-License-Identifier: Apache-2.0
// A checkpoint of one optimizer that is loaded into another: who is who, and what to do.
#include <shardkit/checkpoint.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace other_optimizer_test {

namespace {

namespace sk = shardkit;
using Engine = sk::threads::Engine;

struct Weight : sk::Param<"weight", float, 4, 2> {};
using Layer = sk::Sharded<sk::Params<Weight>, sk::FullShard, Engine>;
using AnyOptimizer = sk::Optimizer<Engine>;

/// What two ranks say to a checkpoint of one optimizer that is loaded into another.
template <class Saved, class Loaded>
std::string said(const Saved& saved, const Loaded& loaded, const sk::checkpoint::LoadOptions& options = {}) {
    const temporary_folder::Folder folder;
    std::string text;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Layer layer(rank, "layer");
        sk::Model model{layer};
        const auto before = saved(model);
        const auto made =
            sk::checkpoint::save(rank, folder.path() + "/run", 1, sk::checkpoint::State{model, *before});
        const auto after = loaded(model);
        try {
            sk::checkpoint::load(rank, made.path, sk::checkpoint::State{model, *after}, options);
        } catch (const sk::FileError& error) {
            if (rank.rank() == 0) { text = error.what(); }
        }
    });
    return text;
}
template <class Made, class Options>
auto makes(Options options) {
    return [options](sk::Model<Engine>& model) { return std::make_unique<Made>(model, options); };
}
const auto adamw = makes<sk::AdamW<Engine>>(sk::AdamWOptions{});
const auto lion = makes<sk::Lion<Engine>>(sk::LionOptions{});
const auto plain_sgd = makes<sk::SGD<Engine>>(sk::SgdOptions{.learning_rate = 0.1});

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

template <class Rule>
void check_named(std::string_view who) {
    sk::detail::NameIndex names;
    for (const std::string_view name : Rule::state_names) { names.add(name); }
    const std::string text = sk::detail::optimizer_in_words(names);
    CHECK(text.ends_with(std::string(", as ").append(who)));
}

}  // namespace

TEST_CASE("a checkpoint of AdamW that is loaded into Lion says so, and so the other way round") {
    const std::string of_adamw = "an optimizer that keeps exp_avg, exp_avg_sq, as AdamW";
    const std::string of_lion = "an optimizer that keeps exp_avg, as Lion";
    const std::string parameters =
        ": checkpoint::LoadOptions::states = false loads the parameters alone. It and the files beside it lack";
    CHECK(has(said(adamw, lion), "was saved with " + of_adamw + ", and is loaded into " + of_lion + parameters));
    CHECK(has(said(lion, adamw),
              "was saved with " + of_lion + ", and is loaded into " + of_adamw +
                  ": checkpoint::LoadOptions::states = false loads the parameters alone. It and the files"));
    CHECK(
        has(said(plain_sgd, adamw),
            "was saved with no optimizer, or one that keeps no states, and is loaded into " + of_adamw + parameters));
    CHECK(said(adamw, lion, {.states = false}) == "");
    CHECK(said(adamw, adamw) == "");
}

TEST_CASE("the library's optimizers are known by the states of their rules") {
    check_named<sk::rules::AdamWRule>(sk::rules::AdamWRule::name);
    check_named<sk::rules::AmsgradRule>(sk::rules::AmsgradRule::name);
    check_named<sk::rules::LionRule>(sk::rules::LionRule::name);
    check_named<sk::rules::SgdRule>(std::string(sk::rules::SgdRule::name) + " with momentum");
    sk::detail::NameIndex mine;
    mine.add("mine");
    CHECK(sk::detail::optimizer_in_words(mine) == "an optimizer that keeps mine");
}

}  // namespace other_optimizer_test
