// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of gathers as 8-bit codes must fail: numbers within their bounds behind every kind of
// write, on meshes of one and of three ranks, and what a plan counts.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/local_shards.hpp>

#include "faults/faulty.hpp"

namespace sk = shardkit;

namespace {

void expect(const char* what, double given, double low, double high) {
    if (given >= low && given <= high) { return; }
    std::printf("%s: %.17g, expected %.17g to %.17g\n", what, given, low, high);
    std::exit(1);
}
void expect(const char* what, double given, double expected) { expect(what, given, expected, expected); }

using E4m3 = sk::detail::CodeFormat<sk::e4m3>;
constexpr std::size_t numel = 3 * 3 * 16384 + 77;  // of three levels of maxima on each of three ranks
struct Long : sk::Param<"long", float, numel> {};
struct Short : sk::Param<"short", float, 3> {};
struct Fixed : sk::Param<"fixed", float, 3>, sk::Frozen {};
using Net = sk::Params<Long, Short>;

void check_numbers() {
    for (const double number : {1.0, 1.03, 1.0625, 1.19, 447.0, 0.0157, 0.0029, 0.001, 0.0}) {
        const auto given = static_cast<float>(number);
        const auto value = static_cast<double>(E4m3::decode(E4m3::encode(given, 1), 1));
        const double bound = std::max(number / 16, 0x1p-10);
        expect("e4m3", value, number - bound, number + bound);
        expect("e4m3 below zero", static_cast<double>(E4m3::decode(E4m3::encode(-given, 1), 1)), -value);
    }
    expect("a tie", static_cast<double>(E4m3::decode(E4m3::encode(1.0625F, 1), 1)), 1);
    expect("scale", static_cast<double>(E4m3::scale(448)), 1);
    expect("next scale", static_cast<double>(E4m3::scale(448.5F)), 2);
    if (!std::isnan(E4m3::scale(std::numeric_limits<float>::infinity()))) { expect("scale of infinity", 0, 1); }
}

template <class Layer>
void check_window(Layer& layer, const char* what, std::size_t largest_at, double largest, double others) {
    const auto window = layer.unshard();
    const auto shown = window[Long{}];
    const auto value = [&](std::size_t i) { return static_cast<double>(shown.decoded(i)); };
    const double bound = 1.0 / 16;
    expect(what, value(largest_at), largest * (1 - bound), largest * (1 + bound));
    const std::size_t far_off = (largest_at + numel / 2) % numel;
    const double least = largest * 0x1p-18;  // by parameter, small numbers lose digits
    expect(what, value(far_off), others * (1 - bound) - least, others * (1 + bound) + least);
    expect("short", static_cast<double>(window[Short{}].decoded(2)), 0.5 * (1 - bound), 0.5 * (1 + bound));
}

template <class Policy>
inline constexpr bool cuts_parameters =
    std::is_same_v<Policy, sk::FullShard> || std::is_same_v<Policy, sk::HybridShard<2>>;

template <class Code, class Policy>
void check(std::size_t ranks) {
    sk::threads::run(sk::DeviceMesh<sk::dynamic>{ranks}, [](auto& rank) {
        using Precision = sk::Precision<Code, float>;
        sk::Sharded<Net, Policy, Precision> layer{rank, "layer"};
        {
            const auto window = layer.unshard();
            expect("first window", static_cast<double>(window[Long{}].decoded(5)), 0);
        }
        {
            const auto window = layer.unshard();
            expect("first scale", static_cast<double>(window[Short{}].scales()[0]),
                   std::is_same_v<Code, sk::e4m3> ? 0x1p-126 : 0.0);
        }
        for (const std::size_t at : {std::size_t{0}, numel / 2 + 5, numel - 1}) {
            layer.initialize([&](auto, auto name, auto i) { return name == "short" ? 0.5 : i == at ? 300.0 : 2.0; });
            check_window(layer, "initialized", at, 300, 2);
        }
        layer.load(Long{}, std::vector<float>(numel, 7));
        check_window(layer, "loaded", 9, 7, 7);
        sk::update_shards(layer, [](auto run) {
            for (auto& each : run.values) { each = static_cast<float>(run.parameter == 0 ? 5 : 0.5); }
        });
        check_window(layer, "written", 9, 5, 5);
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        rank.traffic().clear();
        for (int step = 0; step < 2; ++step) {
            rank.traffic().clear();
            for (int window = 0; window < 2; ++window) { const auto opened = layer.unshard(); }
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (float& each : gradients[Long{}]) { each = 1; }
            accumulation.add(std::move(gradients));
            optimizer.step(std::move(accumulation));
        }
        const sk::Plan plan = sk::plan(model);
        std::uint64_t moved = 0;
        std::uint64_t calls = 0;
        for (const auto& entry : rank.traffic().entries()) {
            if (entry.verb == sk::Verb::all_gather) {
                moved += entry.moved.value;
                calls += entry.calls;
            }
        }
        std::uint64_t planned = 0;
        for (const auto& row : plan.traffic.rows()) {
            if (row.verb == sk::Verb::all_gather) { planned += row.traffic.moved.value; }
        }
        // By parameter, magnitudes travel once behind an update; scales of blocks with every gather.
        const std::uint64_t gathers = cuts_parameters<Policy> ? 2 : 1;
        const std::uint64_t expected = std::is_same_v<Policy, sk::NoShard> || rank.world_size() == 1 ? 0
                                       : std::is_same_v<Code, sk::e4m3>                              ? gathers + 1
                                                                                                     : 2 * gathers;
        expect("gathers", static_cast<double>(calls), static_cast<double>(expected));
        expect("traffic", static_cast<double>(planned), static_cast<double>(moved));
        check_window(layer, "updated", 9, 3, 3);
        std::vector<float> whole(numel);
        layer.read_full(Long{}, whole);
        expect("read", static_cast<double>(whole[numel - 1]), 2.8, 3.2);
        const sk::planner::GroupDescription group = sk::describe_groups(model)[0];
        const std::size_t at_rest = cuts_parameters<Policy> ? group.shard_numel : group.buffer_numel;
        const std::size_t scales = std::is_same_v<Code, sk::e4m3> ? 2 * (1 + group.shards) : at_rest / 64;
        expect("bytes at rest", static_cast<double>(plan.memory.parameters.value),
               static_cast<double>(at_rest + 4 * scales));
        if (cuts_parameters<Policy>) {
            const std::size_t beside = std::is_same_v<Code, sk::e4m3> ? 0 : group.buffer_numel / 64 * 4;
            expect("bytes of a full copy", static_cast<double>(plan.memory.gather_buffers.value),
                   static_cast<double>(group.buffer_numel + beside));
        }
        const auto step = [&](float gradient) {
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (float& each : gradients[Long{}]) { each = gradient; }
            accumulation.add(std::move(gradients));
            optimizer.step(std::move(accumulation));
        };
        step(1);
        layer.load(Long{}, std::vector<float>(numel, 700));
        check_window(layer, "loaded behind a step", 9, 700, 700);
        step(-1000);
        float* hidden = nullptr;
        {
            const auto window = layer.unshard();
            expect("largest found by the step", static_cast<double>(window[Long{}].decoded(7)), 1600, 1800);
        }
        sk::update_shards(layer, [&](auto run) {
            if (run.parameter == 0) { hidden = run.values.data(); }
        });
        step(0);
        if (hidden != nullptr) { *hidden = 1e6F; }
        const auto window = layer.unshard();
        expect("scale of the step's masters", static_cast<double>(window[Long{}].scales()[0]),
               std::is_same_v<Code, sk::e4m3> ? 4 : static_cast<double>(1700.0F / 127));
    });
}

/// Fails in the call of that number on both ranks; where it is one of the gather behind a step, gathers again.
/// Returns whether there was such a call; *again counts those gathers.
bool gather_behind_failed(std::uint64_t call, int* again) {
    using planted::FaultKind;
    planted::Faults faults({{0, FaultKind::error, call}, {1, FaultKind::error, call}});
    const auto train = [&](auto& rank) {
        sk::Sharded<Net, sk::FullShard, sk::Precision<sk::e4m3, float>> layer{rank, "layer"};
        layer.initialize([](auto, auto, auto) { return 300.0; });
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (float& each : gradients[Long{}]) { each = 50; }
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation), {.divisor = sk::sum});
        try {
            const auto window = layer.unshard();
        } catch (const planted::PlantedFault&) {
            *again += rank.rank() == 0 ? 1 : 0;
            const auto window = layer.unshard();
            expect("gathered behind a gather that failed", static_cast<double>(window[Long{}].decoded(5)), 188, 212);
        }
    };
    try {
        sk::threads::run(sk::DeviceMesh<2>{},
                         [&](auto& rank) { planted::with_faults(rank, faults, [&](auto& its) { train(its); }); });
    } catch (const planted::PlantedFault&) {}  // in a call of before or after
    return !faults.struck().empty();
}

/// That these options are refused.
template <class Group>
void check_refused(const char* what, sk::ShardedOptions<sk::GroupOf<Group>, sk::FullShard> options) {
    bool refused = false;
    try {
        static_cast<void>(sk::describe_group<Group, sk::FullShard, sk::Precision<sk::block_int8, float>>(
            "layer", {}, sk::DeviceMesh<2>{}.grid(), options));
    } catch (const std::invalid_argument&) { refused = true; }
    expect(what, refused ? 1 : 0, 1);
}

}  // namespace

int main() {
    check_numbers();
    check_refused<Fixed>("a frozen group refused", {});
    check_refused<Net>("packed parameters refused", {.packing = sk::Packing::packed});
    check_refused<Net>("offloaded masters refused", {.offload = sk::Offload::states});
    check_refused<Net>("no masters refused", {.master = sk::MasterWeights::none});
    for (const std::size_t ranks : {1U, 3U}) {
        check<sk::e4m3, sk::FullShard>(ranks);
        check<sk::e4m3, sk::ShardOptimizer>(ranks);
        check<sk::block_int8, sk::FullShard>(ranks);
        check<sk::block_int8, sk::ShardOptimizer>(ranks);
    }
    int again = 0;
    for (std::uint64_t call = 1; gather_behind_failed(call, &again); ++call) {}
    expect("calls of a gather that failed", again, 1, 9);
    check<sk::block_int8, sk::NoShard>(3);
    check<sk::e4m3, sk::HybridShard<2>>(4);
    return 0;
}
