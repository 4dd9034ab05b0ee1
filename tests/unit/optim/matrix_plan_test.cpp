// SPDX-License-Identifier: Apache-2.0
// The plan of an optimizer of whole matrices against one that exists: its buffers, owners and the traffic log.
#include <shardkit/muon/matrix_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>

namespace matrix_plan_test {

namespace sk = shardkit;

namespace {

using List = sk::TensorList<float>;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

List block() {
    const sk::ParameterAttributes split{.tp = {sk::TpPlacement::Kind::split, 1}};
    return {{"wide", {3, 8}, split}, {"bias", {5}}, {"square", {5, 5}}, {"table", {40, 3}, {.matrix = false}}};
}
const std::string_view paths[] = {"a", "b", "c"};

template <class Policy>
void check(const Mesh& mesh, const sk::Matrices& matrices = {}) {
    CAPTURE(Policy::name);
    CAPTURE(mesh.describe());
    sk::planner::MatrixPlanner<sk::rules::MuonRule, float> planner{mesh.grid(), matrices};
    for (const std::string_view path : paths) { planner.add<List, Policy>(path, block()); }
    const sk::planner::MatrixPlan plan = planner.plan();
    const std::size_t ranks = mesh.size();
    std::vector<std::size_t> bytes(ranks);
    std::vector<sk::TrafficLog> logs(ranks);
    sk::threads::run(mesh, [&](auto& rank) {
        std::vector<sk::Sharded<List, Policy>> layers;
        for (const std::string_view path : paths) { layers.emplace_back(rank, std::string(path), block()); }
        sk::Model model{layers};
        sk::Muon optimizer{model, {}, {}, matrices};
        bytes[rank.rank()] = optimizer.matrices().bytes_of_exchange();
        sk::Accumulation accumulation{model};
        for (auto& layer : layers) { accumulation.add_zero(layer); }
        auto reduced = sk::reduce(std::move(accumulation), sk::sum);
        rank.traffic().clear();
        optimizer.step(std::move(reduced));
        logs[rank.rank()] = rank.traffic();
    });
    CHECK(plan.bytes() == sk::ByteCount(*std::max_element(bytes.begin(), bytes.end())));
    for (const sk::Verb verb : {sk::Verb::all_to_all_uneven, sk::Verb::broadcast}) {
        CAPTURE(name(verb));
        std::uint64_t calls = 0, moved = 0, payload = 0, most = 0;
        for (const sk::TrafficLog& log : logs) {
            calls += log.total(verb).calls;
            moved += log.total(verb).moved.value;
            payload += log.total(verb).payload.value;
            most = std::max(most, log.total(verb).moved.value);
        }
        const sk::planner::PlannedTraffic planned = plan.traffic.total(verb);
        // A mean is rounded for each batch and each set of ranks.
        const auto is_mean = [&](std::uint64_t mean, std::uint64_t sum) {
            const auto off = static_cast<double>(mean) - static_cast<double>(sum) / static_cast<double>(ranks);
            return off >= -2 && off <= 2;
        };
        CHECK(is_mean(planned.moved.value, moved));
        if (ranks == 1) { continue; }  // the plan leaves out what one rank copies
        CHECK(is_mean(planned.payload.value, payload));
        if (verb == sk::Verb::broadcast) {
            CHECK(is_mean(planned.calls, calls));
        } else {
            CHECK(planned.calls * ranks == calls);
            CHECK(planned.busiest.value >= most);  // of each call, and not always of the same rank
        }
    }
}

}  // namespace

TEST_CASE("a plan's bytes and traffic are those of an optimizer that exists") {
    for (const Mesh& mesh : {Mesh(1, 1, 1), Mesh(2, 1, 1), Mesh(3, 1, 1), Mesh(2, 2, 1), Mesh(2, 1, 2)}) {
        check<sk::NoShard>(mesh);
        check<sk::ShardOptimizer>(mesh);
        check<sk::FullShard>(mesh, {.tp = sk::TpMatrices::parts});
        if (mesh.dp() % 2 == 0) { check<sk::HybridShard<2>>(mesh); }
        check<sk::HybridOptimizer<1>>(mesh);
        check<sk::HybridShard<1>>(mesh);
    }
}

namespace {

/// What imbalance() is at least, however whole matrices are given to ranks. Of any k * ranks + 1 of them some rank
/// has k + 1: it has no less than the k + 1 cheapest of these together.
double least_imbalance(const sk::planner::MatrixPlan& plan) {
    std::vector<std::uint64_t> costs;
    double total = 0;
    for (const sk::planner::PlannedMatrix& matrix : plan.matrices) {
        costs.push_back(matrix.cost);
        total += static_cast<double>(matrix.cost);
    }
    std::sort(costs.rbegin(), costs.rend());
    const std::size_t ranks = plan.loads.size();
    double least = total / static_cast<double>(ranks);
    for (std::size_t last = 0; last < costs.size(); last += ranks) {
        double together = 0;
        for (std::size_t i = 0; i <= last / ranks; ++i) { together += static_cast<double>(costs[last - i]); }
        least = std::max(least, together);
    }
    return total > 0 ? least * static_cast<double>(ranks) / total : 1;
}

}  // namespace

TEST_CASE("the busiest owner has at most 1.15 of what it must have, on 2 to 64 ranks") {
    for (const auto& size : {std::pair{4, 128U}, std::pair{6, 512U}, std::pair{12, 768U}, std::pair{24, 1024U}}) {
        const int layers = size.first;
        const unsigned width = size.second;
        for (std::size_t ranks = 2; ranks <= 64; ++ranks) {
            CAPTURE(width);
            CAPTURE(ranks);
            sk::planner::MatrixPlanner<sk::rules::MuonRule, float> planner{Mesh(ranks, 1, 1).grid()};
            for (int layer = 0; layer < layers; ++layer) {
                planner.add<List, sk::FullShard>("blocks." + std::to_string(layer),
                                                 List{{"qkv", {3 * width, width}},
                                                      {"projection", {width, width}},
                                                      {"up", {4 * width, width}},
                                                      {"down", {width, 4 * width}}});
            }
            const sk::planner::MatrixPlan plan = planner.plan();
            CHECK(plan.imbalance() >= least_imbalance(plan));
            CHECK(plan.imbalance() <= 1.15 * least_imbalance(plan) + 1e-9);
            // Where a rank has four matrices or more, and they divide, an equal share is near.
            const std::size_t matrices = 4 * static_cast<std::size_t>(layers);
            if (matrices >= 4 * ranks && matrices % ranks == 0) { CHECK(plan.imbalance() < 1.02); }
        }
    }
}

TEST_CASE("no rank can have less than some of the costliest matrices together") {
    sk::planner::MatrixPlan plan;
    for (const std::uint64_t cost : {10U, 8U, 8U, 6U, 6U, 1U}) { plan.matrices.push_back({"", {}, cost, 0}); }
    const auto least = [&](std::size_t ranks) {
        plan.loads.assign(ranks, 0);
        return least_imbalance(plan);
    };
    CHECK(least(1) == 1);
    CHECK(least(2) == doctest::Approx(20 / 19.5));        // of five some rank has three
    CHECK(least(3) == doctest::Approx(14 / 13.0));        // of four some rank has two
    CHECK(least(4) == doctest::Approx(12 / (39 / 4.0)));  // of five some rank has two
    CHECK(least(8) == doctest::Approx(10 / (39 / 8.0)));  // the largest
    plan.matrices.clear();
    CHECK(least(4) == 1);
}

}  // namespace matrix_plan_test
