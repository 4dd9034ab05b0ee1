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
#include <shardkit/plan/plan_model.hpp>
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

struct PlannedMatrix : sk::Param<"matrix", float, 20, 50> {};
struct PlannedBias : sk::Param<"bias", float, 77> {
    using TensorParallel = sk::tp::PartialSum;
};
using PlannedPair = sk::Params<PlannedMatrix, PlannedBias>;

/// Two steps of `layers`, of which the rank's log holds the second.
template <class Rank, class Layers>
void log_steady_step(Rank& rank, Layers& layers, std::size_t microbatches) {
    sk::Model model{layers};
    sk::AdamW optimizer{model};
    for (int step = 0; step < 2; ++step) {
        rank.traffic().clear();
        sk::Accumulation accumulation{model, microbatches};
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
}

/// What a rank plans and logs of one steady step of three groups, of which `policies` are taken in turns.
template <class Precision, class Rank>
std::pair<sk::Plan, sk::TrafficLog> plan_and_log(Rank& rank, const std::vector<sk::DynamicPolicy>& policies,
                                                 std::size_t microbatches) {
    using Layer = sk::Sharded<PlannedPair, sk::DynamicPolicy, Precision>;
    std::vector<Layer> layers;
    for (std::size_t l = 0; l < 3; ++l) {
        layers.emplace_back(rank, "layers." + std::to_string(l), sk::Shapes<PlannedPair>{},
                            typename Layer::Options{policies[l % policies.size()], {}, {}});
    }
    log_steady_step(rank, layers, microbatches);
    return {sk::plan(sk::Model{layers}, {.microbatches = microbatches}), rank.traffic()};
}

/// `plan` is rank 0's.
inline PlannedAndLogged rows_of(const sk::Plan& plan, const std::vector<sk::TrafficLog>& logs) {
    PlannedAndLogged result{plan, {}, {}};
    const auto add = [](Row& row, std::uint64_t times, const auto& traffic) {
        row.calls += times * traffic.calls;
        row.payload += times * traffic.payload.value;
        row.moved += times * traffic.moved.value;
    };
    for (const auto& [verb, axes, traffic] : plan.traffic.rows()) {
        add(result.planned[{std::string(name(verb)), axes.label()}], logs.size(), traffic);
    }
    for (const sk::TrafficLog& log : logs) {
        for (const auto& entry : log.entries()) {
            add(result.logged[{std::string(name(entry.verb)), entry.axes}], 1, entry);
        }
    }
    return result;
}

/// That of a mesh's ranks as threads.
template <class Precision>
PlannedAndLogged planned_and_logged(const sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>& mesh,
                                    const std::vector<sk::DynamicPolicy>& policies, std::size_t microbatches) {
    std::vector<sk::TrafficLog> logs(mesh.size());
    sk::Plan plan;
    sk::threads::run(mesh, [&](auto& rank) {
        auto mine = plan_and_log<Precision>(rank, policies, microbatches);
        logs[rank.rank()] = std::move(mine.second);
        if (rank.rank() == 0) { plan = mine.first; }
    });
    return rows_of(plan, logs);
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
        const auto of = [&key = key](const Rows& listed) {
            const auto found = listed.find(key);
            return found == listed.end() ? Row{} : found->second;
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
