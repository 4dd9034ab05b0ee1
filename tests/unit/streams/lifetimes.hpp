// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/summon_full_params.hpp>

#include "unit/watched_memory.hpp"

#include "lazy_rank.hpp"

/// One rank on streams that run as late as they may, whose memory says when it is freed while they have work. What
/// the library's host waits for shows in what is freed too early, or used anew too early.
namespace lifetimes {

namespace sk = shardkit;
using lazy::Pace;

/// What was freed, and how much of it while one of the streams still had work.
struct Freed {
    std::vector<lazy::Queue*> streams;
    std::size_t buffers = 0;
    std::size_t in_use = 0;

    bool idle() const {
        return std::all_of(streams.begin(), streams.end(), [](const lazy::Queue* each) { return each->idle(); });
    }
    /// From here on; they have work now.
    void count() {
        if (idle()) { throw std::logic_error("the streams have nothing to do"); }
        buffers = in_use = 0;
    }
    std::string wrong(std::size_t at_least) const {
        return buffers < at_least ? "nothing was freed" : in_use > 0 ? "freed while a stream had work" : "";
    }
};
inline Freed freed;

/// One rank's verbs, whose gathers may fail once they were given to their stream.
class FailingVerbs final : public WatchedVerbs {
  public:
    inline static bool fail = false;
    using WatchedVerbs::WatchedVerbs;

  private:
    void around(const sk::Call& call, sk::host::Memory /*delivered*/, const sk::Stream& /*stream*/,
                const Inner& inner) const override {
        inner();
        if (fail && call.signature.verb == sk::Verb::all_gather) { throw std::runtime_error("planted"); }
    }
    std::shared_ptr<const Verbs> decorate(std::shared_ptr<const Verbs> verbs) const override {
        return std::make_shared<const FailingVerbs>(std::move(verbs), watch());
    }
};

/// Its streams are the watched ones, late unless told otherwise.
struct LazyRank : lazy::Rank {
    explicit LazyRank(Pace of_compute = Pace::lazy, Pace of_communication = Pace::lazy)
        : Rank(of_compute, of_communication, Pace::lazy, {}, [](const sk::Communicator& world) {
              const auto count = [](std::size_t) {
                  ++freed.buffers;
                  if (!freed.idle()) { ++freed.in_use; }
              };
              return sk::Communicator(std::make_shared<FailingVerbs>(
                  world.verbs(), MemoryWatch{.placing = [](std::size_t) {}, .freeing = count}));
          }) {
        freed = {.streams = {&compute, &communication, &reduction}};
    }
};

inline constexpr std::size_t numel = 40;
struct Weight : sk::Param<"weight", float, numel> {};
using Layer = sk::Sharded<Weight, sk::FullShard>;

/// Three layers whose values are 1, 2 and 3 at first.
struct Model {
    std::deque<Layer> layers;

    explicit Model(LazyRank& rank) {
        for (int l = 0; l < 3; ++l) {
            layers.emplace_back(rank, "layers." + std::to_string(l));
            layers.back().initialize([&](auto, auto, std::size_t) { return l + 1; });
        }
        rank.synchronize();
    }
    auto groups() { return sk::Model{layers}; }
};

/// Forward and backward, whose gradients are the parameters.
inline void step(const LazyRank& rank, Model& model, sk::SGD& optimizer) {
    sk::Accumulation accumulation{model.groups()};
    for (auto& layer : model.layers) { const auto window = layer.unshard(); }
    for (std::size_t l = model.layers.size(); l-- > 0;) {
        auto window = model.layers[l].unshard();
        auto gradients = accumulation.gradients(model.layers[l]);
        rank.compute_stream().submit(
            [from = window[Weight{}].data(), to = gradients[Weight{}].data()] { std::copy_n(from, numel, to); });
        model.layers[l].reshard(std::move(window));
        accumulation.add(std::move(gradients));
    }
    optimizer.step(sk::reduce(std::move(accumulation), sk::sum));
}

/// A model whose first step was recorded, on streams that still have it to do where they are late.
struct Recorded {
    LazyRank rank;
    Model model;
    decltype(model.groups()) groups = model.groups();
    sk::SGD optimizer{groups, {.learning_rate = 0.5}};
    sk::Schedule schedule = sk::schedule::record(groups, [&] { step(); });

    explicit Recorded(Pace compute = Pace::lazy, Pace communication = Pace::lazy)
        : rank(compute, communication), model(rank) {}
    void step() { lifetimes::step(rank, model, optimizer); }
    auto described() const { return sk::describe_groups(groups); }
};

/// A group ends while work of the user's in one of the streams may use it.
inline std::string group_ends(std::size_t stream) {
    LazyRank rank;
    std::optional<Layer> layer(std::in_place, rank, "layer");
    rank.synchronize();
    sk::Stream(*freed.streams[stream]).submit([] {});
    freed.count();
    layer.reset();
    return freed.wrong(1);
}

/// What is followed begins behind a step in slots, and ends behind one in its arena.
inline std::string schedule_begins_and_ends() {
    Recorded trainer;
    freed.count();
    std::optional following(
        sk::schedule::follow(trainer.groups, sk::schedule::prefetch(trainer.schedule, trainer.described(), 1)));
    if (const std::string wrong = freed.wrong(2); !wrong.empty()) { return "slots: " + wrong; }
    trainer.step();
    freed.count();
    following.reset();
    const std::string wrong = freed.wrong(1);
    return wrong.empty() ? wrong : "arena: " + wrong;
}

inline std::string measured_step_is_over() {
    Recorded trainer;
    auto following = sk::schedule::follow(trainer.groups, trainer.schedule);
    following.measure();
    trainer.step();
    return following.measured().communication > 0 ? "" : "its collectives have not run";
}

/// Gathers that a step was begun with and never used come to memory that the step of another schedule has taken.
inline std::string schedule_is_chosen() {
    Recorded trainer(Pace::eager);
    auto& model = trainer.model;
    const auto& groups = trainer.groups;
    const sk::Schedule gathers = sk::schedule::prefetch(trainer.schedule, trainer.described(), 3);
    const auto gradients_first = [&](std::vector<float>* seen) {
        sk::Accumulation accumulation{groups};
        auto gradients = accumulation.gradients(model.layers[0]);
        std::fill_n(gradients[Weight{}].data(), numel, 7.0F);
        { const auto window = model.layers[1].unshard(); }
        if (seen != nullptr) { seen->assign(gradients[Weight{}].begin(), gradients[Weight{}].end()); }
        accumulation.add(std::move(gradients));
        for (const std::size_t l : {1U, 2U}) { accumulation.add_zero(model.layers[l]); }
        trainer.optimizer.step(sk::reduce(std::move(accumulation), sk::sum));
    };
    const std::array<sk::Schedule, 2> schedules{gathers,
                                                sk::schedule::record(groups, [&] { gradients_first(nullptr); })};
    auto following = sk::schedule::follow(groups, std::span<const sk::Schedule>(schedules));
    { const sk::Accumulation given_up{groups}; }
    following.choose(1);
    std::vector<float> seen;
    gradients_first(&seen);
    return seen == std::vector<float>(numel, 7) ? "" : "a gather of the other schedule came into the gradients";
}

/// A kernel reads a window of a step that is given up; the next one's gathers come into the same memory.
inline std::string step_is_given_up() {
    Recorded trainer(Pace::lazy, Pace::eager);
    auto& rank = trainer.rank;
    auto& model = trainer.model;
    const auto& groups = trainer.groups;
    const auto following = sk::schedule::follow(groups, trainer.schedule);
    rank.synchronize();
    std::vector<float> seen;
    {
        sk::Accumulation given_up{groups};
        for (auto& layer : model.layers) { const auto window = layer.unshard(); }
        const auto window = model.layers[2].unshard();
        const auto gradients = given_up.gradients(model.layers[2]);
        rank.compute_stream().submit([from = window[Weight{}].data(), &seen] { seen.assign(from, from + numel); });
    }
    std::vector<float> next;
    {
        const sk::Accumulation given_up{groups};
        const auto window = model.layers[0].unshard();
        rank.compute_stream().submit([from = window[Weight{}].data(), &next] { next.assign(from, from + numel); });
    }
    rank.synchronize();
    // The recorded step took half of the first values away.
    if (seen != std::vector<float>(numel, 1.5F)) { return "its kernel read another window"; }
    return next == std::vector<float>(numel, 0.5F) ? "" : "the next step's window differs";
}

/// The memory of parameters that were gathered for one rank's own work, once a kernel has read them.
inline std::string summoned_window_ends() {
    LazyRank rank;
    Model model(rank);
    {
        const auto full = sk::summon_full_params(model.groups());
        rank.compute_stream().submit([] {});
        freed.count();
    }
    return freed.wrong(3);
}
/// The same where a gather fails that was given to its stream already.
inline std::string summoning_fails() {
    LazyRank rank;
    Model model(rank);
    rank.communication_stream().submit([] {});
    freed.count();
    FailingVerbs::fail = true;
    bool failed = false;
    try {
        const auto full = sk::summon_full_params(model.groups());
    } catch (const std::runtime_error&) { failed = true; }
    FailingVerbs::fail = false;
    return failed ? freed.wrong(1) : "nothing was thrown";
}

/// The buffer of a window that was begun and dropped is cleared in a checked build behind its gather, however late
/// that comes.
inline std::string window_is_dropped() {
    LazyRank rank(Pace::eager);
    Model model(rank);
    const float* values = nullptr;
    {
        const auto window = model.layers[0].unshard();
        values = window[Weight{}].data();
    }
    { const auto dropped = model.layers[0].begin_unshard(); }
    rank.synchronize();
    return std::isnan(values[0]) || !sk::checked ? "" : "its buffer has values";
}

/// An optimizer's memory, which its last step uses.
inline std::string optimizer_ends() {
    LazyRank rank;
    Model model(rank);
    {
        sk::SGD optimizer{model.groups(), {.learning_rate = 0.5, .rule = sk::Momentum::classical, .momentum = 0.5}};
        step(rank, model, optimizer);
        freed.count();
    }
    return freed.wrong(3);
}

struct Halves : sk::Param<"halves", sk::bf16, numel> {};
struct Kept : sk::Param<"kept", sk::bf16, numel>, sk::Frozen {};
struct Codes : sk::Param<"codes", float, numel> {};

/// What masters in two halves are joined in for the user, who writes: the halves are made of it later.
inline std::string joined_masters_are_written() {
    LazyRank rank;
    sk::Sharded<Halves, sk::FullShard> layer(rank, "layer", {}, {.master = sk::MasterWeights::split});
    rank.synchronize();
    rank.compute_stream().submit([] {});
    freed.count();
    sk::update_shards(layer, [](sk::ShardRun<float> run) {
        for (float& value : run.values) { value = 3; }
    });
    return freed.wrong(1);
}
/// The same where they are shown, to whoever gives a stream work with them.
inline std::string joined_masters_are_shown() {
    LazyRank rank;
    sk::Sharded<Halves, sk::FullShard> layer(rank, "layer", {}, {.master = sk::MasterWeights::split});
    layer.initialize([](auto, auto, auto) { return 3; });
    float first = 0;
    sk::read_shards(layer, [&](sk::ShardRun<const float> run) {
        first = run.values[0];
        rank.compute_stream().submit([] {});
        freed.count();
    });
    return first != 3 ? "they have not been joined" : freed.wrong(1);
}
/// What the halves of a frozen parameter's masters are made of.
inline std::string frozen_masters_are_split() {
    LazyRank rank;
    using Split = sk::Sharded<sk::Params<Halves, Kept>, sk::FullShard>;
    Split layer(rank, "layer", {}, {.master = sk::MasterWeights::split});
    rank.synchronize();
    rank.compute_stream().submit([] {});
    freed.count();
    layer.load(Kept{}, std::vector<float>(numel, 3));
    return freed.wrong(1);
}
/// What codes are decoded in for others than this rank.
inline std::string codes_are_decoded() {
    LazyRank rank;
    using Coded = sk::Sharded<Codes, sk::FullShard, sk::Precision<sk::block_int8, float>>;
    Coded layer(rank, "layer");
    rank.synchronize();
    freed.buffers = freed.in_use = 0;
    sk::spi::group(layer).read_full(0, false, sk::detail::TensorValueTarget::of(std::span<float>()),
                                    sk::SourceLocation::current());
    return freed.wrong(1);
}

/// Streams that come after each other, each as late as it may: what the others were given before and behind it.
inline std::string fork_and_join() {
    lazy::Queue queues[] = {lazy::Queue(Pace::lazy), lazy::Queue(Pace::lazy), lazy::Queue(Pace::lazy)};
    const sk::Streams streams{sk::Stream(queues[0]), sk::Stream(queues[1]), sk::Stream(queues[2])};
    std::string log;
    const auto give = [&](const sk::Stream& stream, char what) { stream.submit([&log, what] { log += what; }); };
    for (const auto* each : {&streams.communication, &streams.reduction}) {
        log.clear();
        give(streams.compute, '1');
        streams.fork();
        give(*each, '2');
        each->synchronize();
        if (log != "12") { return "fork: " + log; }
        give(*each, '3');
        streams.join();
        give(streams.compute, '4');
        streams.compute.synchronize();
        if (log != "1234") { return "join: " + log; }
    }
    return {};
}

struct Check {
    const char* what;
    std::function<std::string()> wrong;  ///< empty where all is well
};
inline const Check checks[] = {
    {"a group ends with work in the compute stream", [] { return group_ends(0); }},
    {"a group ends with work in the communication stream", [] { return group_ends(1); }},
    {"a group ends with work in the reduction stream", [] { return group_ends(2); }},
    {"a schedule begins and ends", schedule_begins_and_ends},
    {"a measured step", measured_step_is_over},
    {"another schedule is chosen behind a step that was given up", schedule_is_chosen},
    {"a step is given up", step_is_given_up},
    {"a window of summoned parameters ends", summoned_window_ends},
    {"summoning parameters fails", summoning_fails},
    {"a window is begun and dropped", window_is_dropped},
    {"an optimizer ends", optimizer_ends},
    {"joined master weights are written", joined_masters_are_written},
    {"joined master weights are shown", joined_masters_are_shown},
    {"a frozen parameter's master weights are split", frozen_masters_are_split},
    {"codes are decoded", codes_are_decoded},
    {"streams fork and join", fork_and_join},
};

}  // namespace lifetimes
