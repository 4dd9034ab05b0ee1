// SPDX-License-Identifier: Apache-2.0
// What trainers made at random do: steps in which windows lie over each other in any order, are asked for early and
// given up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <shardkit/plan.hpp>
#include <shardkit/shardkit.hpp>

namespace random_trainer {

namespace sk = shardkit;
/// Elements of the groups. Of some of them some ranks have none.
inline constexpr std::array<std::size_t, 6> sizes{1, 111, 4098, 2, 111, 514};

class Random {
  public:
    explicit Random(std::uint64_t seed) : numbers_(seed) {}
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(numbers_() % n); }
    bool one_in(std::size_t n) { return below(n) == 0; }

  private:
    std::mt19937_64 numbers_;
};

enum class Norm { none, clips, clips_and_shows };
enum class Kind { ask, show, end, take, add, add_zero, skip };
struct Verb {
    Kind kind;
    std::size_t group;
    std::size_t window = 0;
    bool last = false;
};
struct Program {
    std::vector<Verb> verbs{};
    std::size_t windows = 0;
    bool trains = true;
    Norm norm = Norm::none;
};

/// Its verbs are in an order that the library allows.
inline Program random_program(Random& random, bool trains) {
    Program program{.trains = trains, .norm = static_cast<Norm>(random.below(3))};
    enum class Gradient { none, taken, added };
    std::array<bool, sizes.size()> skipped{};
    for (std::size_t g = 0; g < sizes.size(); ++g) {
        skipped[g] = trains && random.one_in(6);
        if (skipped[g]) { program.verbs.push_back({Kind::skip, g}); }
    }
    const std::size_t microbatches = 1 + random.below(3);
    for (std::size_t m = 0; m < microbatches; ++m) {
        struct Open {
            std::size_t group;
            std::size_t window;
            bool shown;
        };
        std::vector<Open> open;
        std::array<Gradient, sizes.size()> gradients{};
        std::size_t to_open = 3 + random.below(8);
        const auto to_add = [&] {
            for (std::size_t g = 0; g < sizes.size(); ++g) {
                if (trains && !skipped[g] && gradients[g] != Gradient::added) { return true; }
            }
            return false;
        };
        while (to_open > 0 || !open.empty() || to_add()) {
            const std::size_t g = random.below(sizes.size());
            const std::size_t of = open.empty() ? 0 : random.below(open.size());
            switch (random.below(4)) {
                case 0:
                    if (to_open == 0) { break; }
                    --to_open;
                    open.push_back({g, program.windows++, !random.one_in(3)});
                    program.verbs.push_back({Kind::ask, g, open.back().window});
                    if (open.back().shown) { program.verbs.push_back({Kind::show, g, open.back().window}); }
                    break;
                case 1:
                    if (open.empty() || open[of].shown) { break; }
                    open[of].shown = true;
                    program.verbs.push_back({Kind::show, open[of].group, open[of].window});
                    break;
                case 2:
                    if (open.empty() || !open[of].shown) { break; }
                    program.verbs.push_back({Kind::end, open[of].group, open[of].window});
                    open.erase(open.begin() + static_cast<std::ptrdiff_t>(of));
                    break;
                default: {
                    if (!trains || skipped[g] || gradients[g] == Gradient::added) { break; }
                    const bool last = m + 1 == microbatches && random.one_in(2);
                    if (gradients[g] == Gradient::none && !random.one_in(5)) {
                        gradients[g] = Gradient::taken;
                        program.verbs.push_back({Kind::take, g});
                    } else {
                        const Kind kind = gradients[g] == Gradient::taken ? Kind::add : Kind::add_zero;
                        gradients[g] = Gradient::added;
                        program.verbs.push_back({kind, g, 0, last});
                    }
                }
            }
        }
    }
    return program;
}

/// What is done one after the other with a model.
struct Plan {
    enum class Act { step, half_a_step, evaluate, initialize, load };
    struct Action {
        Act act;
        std::size_t program;
        std::size_t number;
    };
    std::size_t ranks;
    sk::DynamicPolicy policy{sk::FullShard{}};
    std::vector<Program> programs{};
    std::vector<Action> actions{};
    std::size_t passes = 0;
};

inline sk::DynamicPolicy unreduced(const auto& policy, std::size_t ranks, const char* name) {
    sk::rules::PolicyValues values = sk::rules::policy_values(policy, ranks);
    values.name = name;
    values.accumulate = sk::Accumulate::unreduced;
    return sk::DynamicPolicy(values);
}

inline Plan random_plan(std::uint64_t seed, std::size_t most_ranks) {
    Random random(seed);
    Plan plan{.ranks = 1 + random.below(most_ranks)};
    const std::array policies{
        sk::DynamicPolicy(sk::NoShard{}),
        sk::DynamicPolicy(sk::ShardOptimizer{}),
        sk::DynamicPolicy(sk::ShardGradOp{}),
        sk::DynamicPolicy(sk::FullShard{}),
        plan.ranks % 2 == 0 ? sk::DynamicPolicy(sk::HybridShard<2>{}) : sk::DynamicPolicy(sk::HybridShard<1>{}),
        plan.ranks % 2 == 0 ? sk::DynamicPolicy(sk::HybridOptimizer<2>{})
                            : sk::DynamicPolicy(sk::HybridOptimizer<1>{}),
        plan.ranks % 2 == 0 ? sk::DynamicPolicy(sk::SecondaryShard<2>{}) : sk::DynamicPolicy(sk::SecondaryShard<1>{}),
        unreduced(sk::FullShard{}, plan.ranks, "full, unreduced"),
        unreduced(sk::ShardGradOp{}, plan.ranks, "gradients, unreduced")};
    plan.policy = policies[random.below(policies.size())];
    plan.passes = random.below(32);
    const std::size_t programs = 1 + random.below(3);
    for (std::size_t p = 0; p < programs; ++p) {
        plan.programs.push_back(random_program(random, p == 0 || random.one_in(2)));
    }
    const std::size_t actions = 6 + random.below(8);
    for (std::size_t a = 0; a < actions; ++a) {
        constexpr std::array acts{Plan::Act::step,       Plan::Act::step,        Plan::Act::step,
                                  Plan::Act::step,       Plan::Act::half_a_step, Plan::Act::evaluate,
                                  Plan::Act::initialize, Plan::Act::load};
        const std::size_t program = random.below(programs);
        plan.actions.push_back(
            {acts[random.below(acts.size())], program, random.below(plan.programs[program].verbs.size())});
    }
    return plan;
}

}  // namespace random_trainer
