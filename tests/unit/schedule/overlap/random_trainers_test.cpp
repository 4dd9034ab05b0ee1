// SPDX-License-Identifier: Apache-2.0
// Trainers made at random, as they are and behind schedules made of what they recorded: equal bits, however windows
// lie over each other, are asked for early or are given up, and in every kind of overlap.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

#include "test_size.hpp"
#include "unit/backend/overlaps.hpp"

namespace random_trainers_test {

namespace {

namespace sk = shardkit;
using Engine = sk::threads::Engine;
using sk::threads::LaunchOptions;
struct Elements : sk::Param<"elements", float, sk::dynamic> {};
using Layer = sk::Sharded<Elements, sk::DynamicPolicy, Engine>;
using Asked = decltype(std::declval<Layer&>().begin_unshard());
using Window = decltype(std::declval<Layer&>().unshard());
using Gradients = decltype(std::declval<sk::Accumulation<std::vector<Layer>>&>().gradients(std::declval<Layer&>()));

/// Elements of the groups. Of some of them some ranks have none.
constexpr std::array<std::size_t, 6> sizes{1, 111, 4098, 2, 111, 4098};

class Random {
  public:
    explicit Random(std::uint64_t seed) : numbers_(seed) {}
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(numbers_() % n); }
    bool one_in(std::size_t n) { return below(n) == 0; }

  private:
    std::mt19937_64 numbers_;
};

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
    bool norm = true;
};

/// Its verbs are in an order that the library allows.
Program random_program(Random& random, bool trains) {
    Program program{.trains = trains, .norm = random.one_in(2)};
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

sk::DynamicPolicy unreduced(const auto& policy, std::size_t ranks, const char* name) {
    sk::PolicyValues values = sk::policy_values(policy, ranks);
    values.name = name;
    values.accumulate = sk::Accumulate::unreduced;
    return sk::DynamicPolicy(values);
}

Plan random_plan(std::uint64_t seed) {
    Random random(seed);
    Plan plan{.ranks = 1 + random.below(5)};
    const std::array policies{
        sk::DynamicPolicy(sk::NoShard{}),
        sk::DynamicPolicy(sk::ShardOptimizer{}),
        sk::DynamicPolicy(sk::ShardGradOp{}),
        sk::DynamicPolicy(sk::FullShard{}),
        plan.ranks % 2 == 0 ? sk::DynamicPolicy(sk::HybridShard<2>{}) : sk::DynamicPolicy(sk::HybridShard<1>{}),
        unreduced(sk::FullShard{}, plan.ranks, "full, unreduced"),
        unreduced(sk::ShardGradOp{}, plan.ranks, "gradients, unreduced")};
    plan.policy = policies[random.below(policies.size())];
    plan.passes = random.below(64);
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

sk::Schedule improved(sk::Schedule s, std::span<const sk::GroupDescription> groups, std::size_t passes) {
    if ((passes & 1) != 0) { s = sk::keep_gathered(s, groups, sk::peak(s, groups) + sk::ByteCount(3000)); }
    if ((passes & 2) != 0) { s = sk::prefetch(s, groups, 1 + passes % 3); }
    if ((passes & 4) != 0) { s = sk::overlap_reductions(s, groups); }
    if ((passes & 8) != 0) { s = sk::gather_after_update(s, groups); }
    if ((passes & 16) != 0) { s = sk::keep_gathered(s, groups, sk::peak(s, groups)); }
    if ((passes & 32) != 0) {
        try {
            s = sk::memory_limit(s, groups, sk::peak(s, groups) - sk::ByteCount(1));
        } catch (const std::invalid_argument&) {}  // nothing to undo
    }
    return s;
}

class Trainer {
  public:
    Trainer(sk::Context<Engine>& rank, const Plan& plan) : plan_(plan), rank_(rank.rank()) {
        for (const std::size_t numel : sizes) {
            layers_.emplace_back(rank, "layers." + std::to_string(layers_.size()),
                                 sk::Shapes<Elements>{sk::shape<Elements>(numel)}, Layer::Options{plan.policy});
        }
        initialize(0);
        optimizer_.emplace(model(), sk::AdamWOptions{.learning_rate = 0.125});
    }

    std::vector<double> run(bool follows) {
        std::vector<sk::Schedule> schedules;
        for (const Program& program : plan_.programs) {
            schedules.push_back(sk::record(model(), [&] { step(program, program.verbs.size()); }));
        }
        std::optional<sk::Following<Engine>> following;
        if (follows) {
            const auto groups = sk::describe_groups(model());
            for (sk::Schedule& schedule : schedules) { schedule = improved(schedule, groups, plan_.passes); }
            following.emplace(sk::follow(model(), std::span<const sk::Schedule>(schedules)));
        }
        for (const Plan::Action& action : plan_.actions) {
            const Program& program = plan_.programs[action.program];
            switch (action.act) {
                case Plan::Act::step:
                case Plan::Act::half_a_step:
                    if (following) { following->choose(action.program); }
                    step(program, action.act == Plan::Act::step ? program.verbs.size() : action.number);
                    break;
                case Plan::Act::evaluate:
                    evaluate();
                    break;
                case Plan::Act::initialize:
                    initialize(action.number);
                    break;
                case Plan::Act::load:
                    layers_[1].load(Elements{}, std::vector<float>(sizes[1], static_cast<float>(action.number)));
                    break;
            }
        }
        evaluate();
        following.reset();
        step(plan_.programs[0], plan_.programs[0].verbs.size());
        evaluate();
        return std::move(seen_);
    }

  private:
    decltype(sk::groups(std::declval<std::vector<Layer>&>())) model() { return sk::groups(layers_); }
    void initialize(std::size_t number) {
        for (Layer& layer : layers_) {
            layer.initialize([&](auto, auto, std::uint64_t i) { return std::sin(static_cast<double>(number + i)); });
        }
    }
    /// Depends on every bit.
    void read(const Window& window) {
        for (const float value : window[Elements{}]) { activation_ = std::sin(1.5 * activation_ + value); }
    }
    void evaluate() {
        for (Layer& layer : layers_) { read(layer.unshard()); }
        seen_.push_back(activation_);
    }
    /// Its first verbs, and if these are all of them what comes behind.
    void step(const Program& program, std::size_t verbs) {
        const double before = activation_;
        const auto groups = model();
        sk::Accumulation accumulation{groups};
        std::vector<std::optional<Asked>> asked(program.windows);
        std::vector<std::optional<Window>> shown(program.windows);
        std::array<std::optional<Gradients>, sizes.size()> gradients;
        for (const Verb& verb : std::span(program.verbs).first(verbs)) {
            Layer& layer = layers_[verb.group];
            auto& window = shown[verb.kind <= Kind::end ? verb.window : 0];
            auto& gradient = gradients[verb.group];
            const auto microbatch = verb.last ? sk::Microbatch::last : sk::Microbatch::more;
            switch (verb.kind) {
                case Kind::ask:
                    asked[verb.window].emplace(layer.begin_unshard());
                    break;
                case Kind::show:
                    window.emplace(std::move(*asked[verb.window]).wait());
                    asked[verb.window].reset();
                    read(*window);
                    break;
                case Kind::end:
                    read(*window);
                    layer.reshard(*std::exchange(window, std::nullopt));
                    break;
                case Kind::take:
                    gradient.emplace(accumulation.gradients(layer));
                    break;
                case Kind::add: {
                    double angle = activation_ + static_cast<double>(rank_);
                    for (float& each : (*gradient)[Elements{}]) {
                        each += static_cast<float>(std::sin(angle += 0.7));
                    }
                    accumulation.add(*std::exchange(gradient, std::nullopt), microbatch);
                    break;
                }
                case Kind::add_zero:
                    accumulation.add_zero(layer, microbatch);
                    break;
                case Kind::skip:
                    accumulation.skip(layer);
                    break;
            }
        }
        if (verbs < program.verbs.size()) {
            activation_ = before;
            return;
        }
        seen_.push_back(activation_);
        if (!program.trains) { return; }
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        if (!program.norm) {
            optimizer_->step(std::move(reduced));
            return;
        }
        const auto norm = sk::global_norm(reduced);
        seen_.push_back(norm.value());
        optimizer_->step(std::move(reduced), sk::clip(norm, 1.0));
    }

    const Plan& plan_;
    std::size_t rank_;
    std::vector<Layer> layers_;
    std::optional<sk::AdamW<std::vector<Layer>>> optimizer_;
    double activation_ = 0;
    std::vector<double> seen_;
};

std::vector<std::vector<double>> seen(const Plan& plan, bool follows, const LaunchOptions& options) {
    std::vector<std::vector<double>> all(plan.ranks);
    sk::threads::run(
        sk::DeviceMesh<sk::dynamic>(plan.ranks),
        [&](auto& rank) { all[rank.rank()] = Trainer(rank, plan).run(follows); }, {.in_flight = 64}, options);
    return all;
}

}  // namespace

TEST_CASE("overlap: trainers made at random see the same bits behind every schedule that is made of them") {
    constexpr std::array kinds{LaunchOptions{}, rank_checks::on_threads, rank_checks::deferred, rank_checks::helped};
    const std::uint64_t trainers = test_size::reduced() ? 16 : 60;
    for (std::uint64_t seed = 0; seed < trainers; ++seed) {
        CAPTURE(seed);
        const Plan plan = random_plan(seed);
        const auto plain = seen(plan, false, {});
        CHECK(std::ranges::none_of(plain[0], [](double value) { return std::isnan(value); }));
        for (std::size_t kind = seed % 2; kind < kinds.size(); kind += 2) {
            CAPTURE(kind);
            CHECK(seen(plan, true, kinds[kind]) == plain);
        }
    }
}

}  // namespace random_trainers_test
