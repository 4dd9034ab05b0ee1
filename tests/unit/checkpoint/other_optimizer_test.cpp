// SPDX-License-Identifier: Apache-2.0
// A checkpoint of one optimizer that is loaded into another: who is who, and what to do.
#include <shardkit/checkpoint.hpp>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "renamed_in_step.hpp"
#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace other_optimizer_test {

namespace {

namespace sk = shardkit;

struct Weight : sk::Param<"weight", float, 4, 2> {};
using Layer = sk::Sharded<sk::Params<Weight>, sk::FullShard>;
using AnyOptimizer = sk::Optimizer;

/// What two ranks say to a checkpoint of one optimizer that is loaded into another.
/// @param change  what happens to the files in between
template <class Saved, class Loaded>
std::string said(const Saved& saved, const Loaded& loaded, const sk::checkpoint::LoadOptions& options = {},
                 const std::function<void(const std::string&)>& change = {}) {
    const temporary_folder::Folder folder;
    std::string text;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Layer layer(rank, "layer");
        sk::Model model{layer};
        const auto before = saved(model);
        sk::checkpoint::save(rank, folder.path() + "/run", 1, sk::checkpoint::State{model, *before});
    });
    const std::string step = folder.path() + "/run/step-00000001";
    if (change) { change(step); }
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Layer layer(rank, "layer");
        sk::Model model{layer};
        const auto after = loaded(model);
        try {
            sk::checkpoint::load(rank, step, sk::checkpoint::State{model, *after}, options);
        } catch (const sk::FileError& error) {
            if (rank.rank() == 0) { text = error.what(); }
        }
    });
    return text;
}
template <class Made, class Options>
auto makes(Options options) {
    return [options](sk::Model& model) { return std::make_unique<Made>(model, options); };
}
const auto adamw = makes<sk::AdamW>(sk::AdamWOptions{});
const auto lion = makes<sk::Lion>(sk::LionOptions{});
const auto amsgrad = makes<sk::AMSGrad>(sk::AdamWOptions{});
const auto muon = makes<sk::Muon>(sk::MuonOptions{});
const auto momentum =
    makes<sk::SGD>(sk::SgdOptions{.learning_rate = 0.1, .rule = sk::Momentum::classical, .momentum = 0.9});
const auto plain_sgd = makes<sk::SGD>(sk::SgdOptions{.learning_rate = 0.1});

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a checkpoint of AdamW that is loaded into Lion says so, and so the other way round") {
    const std::string of_adamw = "an optimizer that keeps exp_avg, exp_avg_sq, as AdamW";
    const std::string of_lion = "an optimizer that keeps exp_avg, as Lion";
    const std::string parameters = ": checkpoint::LoadOptions::states = false loads the parameters alone. It ";
    CHECK(has(said(adamw, lion), "was saved with " + of_adamw + ", and is loaded into " + of_lion + parameters +
                                     "has 'exp_avg of layer.weight' as a state of AdamW, expected one of Lion"));
    CHECK(has(said(lion, adamw), "was saved with " + of_lion + ", and is loaded into " + of_adamw + parameters +
                                     "has 'exp_avg of layer.weight' as a state of Lion, expected one of AdamW"));
    CHECK(
        has(said(plain_sgd, adamw), "was saved with no optimizer, or one that keeps no states, and is loaded into " +
                                        of_adamw + parameters + "and the files beside it lack"));
    CHECK(said(adamw, lion, {.states = false}) == "");
    CHECK(said(adamw, adamw) == "");
}

TEST_CASE("states are loaded into the rule that they are of, all of a parameter's or none, also of a subset") {
    using Make = std::function<std::unique_ptr<AnyOptimizer>(sk::Model&)>;
    struct Kind {
        std::string name;
        std::string first_state;
        Make make;
    };
    const std::vector<Kind> kinds{{"AdamW", "exp_avg", adamw},
                                  {"AMSGrad", "exp_avg", amsgrad},
                                  {"Lion", "exp_avg", lion},
                                  {"Muon", "momentum_buffer", muon},
                                  {"SGD", "momentum_buffer", momentum}};
    for (const Kind& saved : kinds) {
        for (const Kind& loaded : kinds) {
            for (const bool subset : {false, true}) {
                CAPTURE(saved.name);
                CAPTURE(loaded.name);
                CAPTURE(subset);
                const std::string text = said(saved.make, loaded.make, {.subset = subset});
                if (saved.name == loaded.name) {
                    CHECK(text == "");
                } else if (saved.first_state == loaded.first_state) {
                    CHECK(has(text, "has '" + saved.first_state + " of layer.weight' as a state of " + saved.name +
                                        ", expected one of " + loaded.name));
                } else {
                    CHECK(text.empty() == subset);  // of these states there are none
                }
            }
        }
        CHECK(said(saved.make, plain_sgd, {.subset = true}) == "");
        CHECK(said(plain_sgd, saved.make, {.subset = true}) == "");
    }
}

TEST_CASE("states that do not say of which rule they are, as forms of before the first release, are refused") {
    const auto forget = [](const std::string& step) {
        renamed_in_step::rename(step, "shardkit.rule", "shardkit.none");
    };
    CHECK(has(said(momentum, momentum, {.subset = true}, forget),
              "was saved with an optimizer that keeps momentum_buffer, and is loaded into an optimizer that keeps "
              "momentum_buffer, as SGD: checkpoint::LoadOptions::states = false loads the parameters alone. It has "
              "'momentum_buffer of layer.weight' as a state of a rule that is not named, expected one of SGD"));
}

}  // namespace other_optimizer_test
