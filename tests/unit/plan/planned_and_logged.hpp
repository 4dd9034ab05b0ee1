// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

/// A step's collectives over all ranks, as the plan says and as the logs do.
namespace toy {

namespace sk = shardkit;

struct Row {
    std::uint64_t calls = 0;
    std::uint64_t payload = 0;
    std::uint64_t moved = 0;
};
/// By verb and label.
using Rows = std::map<std::pair<std::string, std::string>, Row>;
struct PlannedAndLogged {
    sk::Plan plan;  ///< of one rank
    Rows planned;   ///< times the number of ranks
    Rows logged;    ///< their sum
};

struct Matrix : sk::Param<"matrix", float, 20, 50> {};
struct Bias : sk::Param<"bias", float, 77> {
    using TensorParallel = sk::tp::PartialSum;
};
using Pair = sk::Params<Matrix, Bias>;

/// One steady step of three groups, of which `policies` are taken in turns.
template <class Precision>
PlannedAndLogged planned_and_logged(const sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>& mesh,
                                    const std::vector<sk::DynamicPolicy>& policies, std::size_t microbatches) {
    std::vector<sk::TrafficLog> logs(mesh.size());
    PlannedAndLogged result;
    sk::threads::run(mesh, [&](auto& rank) {
        using Engine = sk::EngineOf<decltype(rank)>;
        using Layer = sk::Sharded<Pair, sk::DynamicPolicy, Engine, Precision>;
        std::vector<Layer> layers;
        for (std::size_t l = 0; l < 3; ++l) {
            layers.emplace_back(rank, "layers." + std::to_string(l), sk::Shapes<Pair>{},
                                typename Layer::Options{policies[l % policies.size()], {}, {}});
        }
        auto model = sk::groups(layers);
        sk::AdamW optimizer{model};
        for (int step = 0; step < 2; ++step) {
            rank.traffic().clear();
            sk::Accumulation accumulation{model};
            for (std::size_t m = 0; m < microbatches; ++m) {
                for (auto& layer : layers) { layer.reshard(layer.unshard()); }
                for (auto& layer : layers) {
                    const auto window = layer.unshard();
                    accumulation.add_zero(layer);
                }
            }
            auto reduced = sk::reduce(std::move(accumulation), sk::mean);
            const auto norm = sk::global_norm(reduced);
            optimizer.step(std::move(reduced), sk::clip(norm, 1));
        }
        logs[rank.rank()] = rank.traffic();
        if (rank.rank() == 0) { result.plan = sk::plan(model, {.microbatches = microbatches}); }
    });
    const auto add = [](Row& row, std::uint64_t times, std::uint64_t calls, sk::ByteCount payload,
                        sk::ByteCount moved) {
        row.calls += times * calls;
        row.payload += times * payload.value;
        row.moved += times * moved.value;
    };
    for (const auto& [verb, axes, traffic] : result.plan.traffic.rows()) {
        add(result.planned[{std::string(name(verb)), axes.label()}], mesh.size(), traffic.calls, traffic.payload,
            traffic.moved);
    }
    for (const sk::TrafficLog& log : logs) {
        for (const auto& entry : log.entries()) {
            add(result.logged[{std::string(name(entry.verb)), entry.axes}], 1, entry.calls, entry.payload,
                entry.moved);
        }
    }
    return result;
}

/// What differs between them, in words; empty when nothing does. Bytes moved are planned as the mean over the ranks,
/// rounded for each kind of call, and calls over tp, which not every rank makes, as well.
inline std::string difference(const PlannedAndLogged& result, std::size_t ranks) {
    std::string text;
    const auto check = [&](const auto& key, const char* what, std::uint64_t planned, std::uint64_t logged,
                           std::uint64_t bound) {
        if ((planned > logged ? planned - logged : logged - planned) <= bound) { return; }
        text += key.first + " over " + key.second + ": " + what + " planned " + std::to_string(planned) +
                ", logged " + std::to_string(logged) + '\n';
    };
    Rows all = result.planned;
    all.insert(result.logged.begin(), result.logged.end());
    for (const auto& [key, ignored] : all) {
        const auto of = [&key = key](const Rows& rows) {
            const auto found = rows.find(key);
            return found == rows.end() ? Row{} : found->second;
        };
        const Row planned = of(result.planned);
        const Row logged = of(result.logged);
        const bool not_every_rank = key.second == "tp";
        check(key, "calls", planned.calls, logged.calls, not_every_rank ? ranks / 2 : 0);
        check(key, "payload", planned.payload, logged.payload, not_every_rank ? ranks / 2 : 0);
        check(key, "moved", planned.moved, logged.moved, 8 * ranks);
    }
    return text;
}

}  // namespace toy
