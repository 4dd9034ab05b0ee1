// SPDX-License-Identifier: Apache-2.0
// The collectives of the engine nccl on the stand-in for GPUs: ranks are threads, and no figure says anything.
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <shardkit/mesh/device_mesh.hpp>

#include "../../benchmarks/collectives/run_rank.hpp"
#include "../../benchmarks/common/require_gpus.hpp"
#include "../../benchmarks/gpu/kernels.hpp"
#include "../unit/backend/nccl/given_kernels.hpp"
#include "../unit/backend/nccl/paced_ranks.hpp"
#include "looped_kernels.hpp"
#include "planted_verb.hpp"

namespace collectives_standin_test {

namespace {

using namespace benchmarks;

const std::vector<VerbKind> all_verbs{VerbKind::all_gather,   VerbKind::reduce_scatter, VerbKind::all_reduce,
                                      VerbKind::broadcast,    VerbKind::all_to_all,     VerbKind::all_to_all_uneven,
                                      VerbKind::send_receive, VerbKind::barrier};
const std::vector<DataType> all_types{DataType::fp64,  DataType::fp32,  DataType::fp16, DataType::bf16,
                                      DataType::int64, DataType::int32, DataType::uint8};

Options small(std::size_t dp, std::size_t tp = 1) {
    Options options;
    options.engine = EngineKind::nccl;
    options.verbs = all_verbs;
    options.mesh.dp = dp;
    options.mesh.tp = tp;
    options.min_bytes = 64;
    options.max_bytes = 1024;
    options.step_factor = 16;
    options.calls = 2;
    options.rounds = 2;
    options.warmup = 1;
    return options;
}

/// The rows of a run whose streams work at these paces.
std::vector<Row> rows_of(const Options& options, paced_ranks::Paces paces) {
    std::vector<Row> rows;
    const shardkit::DeviceMesh mesh(options.mesh.dp, options.mesh.tp, options.mesh.cp);
    CHECK(paced_ranks::run(mesh, paces, {}, [&](shardkit::Rank& rank, const auto&) {
              run_rank(rank, options, [&](const Row& row) { rows.push_back(row); });
          }) == "");
    CHECK(host_functions::given_beside(benchmarks::gpu::Kernels{}) == "");
    return rows;
}

void check_figure(const std::optional<Figure>& figure, bool expected, double copied) {
    REQUIRE(figure.has_value() == expected);
    if (!expected) { return; }
    CHECK(figure->wrong == 0);
    CHECK(figure->calls == 2);
    CHECK(figure->time.min > 0);
    CHECK(figure->copy.has_value() == (copied > 0));
    if (figure->copy) { CHECK(figure->copy->way == "cudaMemcpyAsync"); }
}

void check_rows(const Options& options) {
    for (const paced_ranks::Paces paces : {paced_ranks::all_paces[0], paced_ranks::all_paces[3]}) {
        const std::vector<Row> rows = rows_of(options, paces);
        REQUIRE(rows.size() == plan_rows(options, options.group_size()).size());
        for (const Row& row : rows) {
            CAPTURE(verb_names[static_cast<std::size_t>(row.verb)]);
            const VerbFacts facts = VerbFacts::of(row.verb, options.group_size());
            check_figure(row.out_of_place, facts.out_of_place, facts.copied_out_of_place);
            check_figure(row.in_place, facts.in_place, facts.copied_in_place);
        }
    }
}

/// Two checks of V on 3 ranks, of V with one spoiled element and of V that is left out.
template <class V>
void check_data_check(Placement placement) {
    CAPTURE(placement == Placement::in_place);
    CHECK(paced_ranks::run(
              shardkit::DeviceMesh<3>{}, paced_ranks::all_paces[0], {}, [&](shardkit::Rank& rank, const auto&) {
                  const Shape shape{{0, 1, 2}, rank.rank(), 5, 2, shardkit::ReduceOp::sum};
                  CHECK(wrong_after_checks<V, float>(rank, placement, shape, 2) == 0);
                  CHECK(wrong_after_checks<Planted<V, Fault::one_element>, float>(rank, placement, shape, 2) == 2);
                  CHECK(wrong_after_checks<Planted<V, Fault::not_called>, float>(rank, placement, shape, 2) > 0);
              }) == "");
}

}  // namespace

TEST_CASE("nccl: every verb on 1 to 4 ranks gives right data") {
    for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
        CAPTURE(ranks);
        check_rows(small(ranks));
    }
}

TEST_CASE("nccl: groups of a mesh axis do not disturb each other") {
    Options options = small(2, 2);
    for (const std::vector<std::size_t>& axes : {std::vector<std::size_t>{0}, {1}, {1, 0}}) {
        options.axes = axes;
        check_rows(options);
    }
}

TEST_CASE("nccl: every element type and operation") {
    Options options = small(3);
    options.verbs = {VerbKind::all_reduce, VerbKind::reduce_scatter};
    options.types = all_types;
    options.ops = {shardkit::ReduceOp::sum, shardkit::ReduceOp::max, shardkit::ReduceOp::min};
    check_rows(options);
}

TEST_CASE("nccl: one planted value is one wrong value, a call left out is many") {
    for (const VerbKind verb : all_verbs) {
        with_verb(verb, [&]<class V>(V) {
            CAPTURE(verb_names[static_cast<std::size_t>(verb)]);
            for (const Placement placement : {Placement::out_of_place, Placement::in_place}) {
                if (V::moves_data && VerbFacts::of(verb, 3).has(placement)) { check_data_check<V>(placement); }
            }
        });
    }
}

TEST_CASE("GPUs that are missing are refused in a line that counts them") {
    const auto refusal = [](int there, std::size_t number, std::size_t wanted) -> std::string {
        standin::reset();
        standin::set_device_count(there);
        try {
            require_gpus("--engine nccl", number, wanted);
        } catch (const program::InputError& error) { return error.what(); }
        return "";
    };
    CHECK(refusal(2, 1, 2) == "");
    CHECK(
        refusal(0, 0, 1) ==
        "--engine nccl: this machine has no GPU that CUDA can use (no CUDA-capable device is detected): expected one "
        "for each rank");
    CHECK(refusal(1, 0, 4) ==
          "--engine nccl: this machine has 1 GPU, but is to run 4 ranks: expected at most one rank for each GPU");
    CHECK(refusal(2, 2, 1) ==
          "--engine nccl: this machine has 2 GPUs, but is to run 3 ranks: expected at most one rank for each GPU");
    standin::reset();
}

}  // namespace collectives_standin_test
