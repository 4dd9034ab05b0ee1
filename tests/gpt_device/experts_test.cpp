// SPDX-License-Identifier: Apache-2.0
// Layers of experts on the stand-in's GPUs, against the host's trainer.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "device_training.hpp"

namespace experts_test {

using namespace device_training;
using shardkit::bf16;

namespace {

/// Of a model with four experts behind each block, two of which a token uses.
Options with_experts(program::MeshExtents mesh, std::size_t ep, Dtype dtype, std::size_t capacity = 0) {
    Options options = test::base();
    options.mesh = mesh;
    options.ep = ep;
    options.dtype = dtype;
    options.batch = 8;
    options.steps = 20;
    options.model.experts = 4;
    options.model.capacity = capacity;
    options.policy = {program::PolicyKind::full_shard};
    return options;
}

bool is_possible(const Options& options) {
    return !program::has_groups(options.policy.kind) || options.policy.group * options.mesh.cp % options.ep == 0;
}

}  // namespace

TEST_SUITE("gpt.device") {
    TEST_CASE("20 steps with experts have the host's losses, shared by 1, 2 and 4 ranks, under every policy") {
        for (const std::size_t capacity : {0U, 5U}) {  // of 32 choices of a pass
            for (const std::size_t ep : {1U, 2U, 4U}) {
                const Options options = with_experts({4, 1, 1}, ep, Dtype::fp64, capacity);
                const std::vector<double> expected = test::run(options).losses;
                CHECK(expected.back() < expected.front() - 0.05);
                CAPTURE(ep);
                CAPTURE(capacity);
                Options narrow = options;
                narrow.dtype = Dtype::fp32;
                CHECK(worst(train<float>(narrow), test::run(narrow).losses) <= 1e-5);
                test::for_each_policy(options, [&](const Options& with) {
                    if (!is_possible(with)) { return; }
                    CAPTURE(with.policy.text());
                    CHECK(worst(train<double>(with), expected) <= 1e-12);
                });
            }
        }
    }
    TEST_CASE("experts that tp cuts, and those of sequences that cp cuts, have the host's losses, in microbatches") {
        struct Shared {
            program::MeshExtents mesh;
            std::size_t ep;
        };
        for (const auto& [mesh, ep] : {Shared{{2, 2, 1}, 2}, {{1, 2, 2}, 2}, {{2, 1, 2}, 4}, {{2, 1, 2}, 2}}) {
            Options options = with_experts(mesh, ep, Dtype::fp64);
            options.steps = 5;
            options.batch = 6;
            options.microbatches = 2;
            CAPTURE(mesh.describe());
            CAPTURE(ep);
            CHECK(worst(train<double>(options), test::run(options).losses) <= 1e-12);
        }
    }
    TEST_CASE("slices have the same bits for every number of ranks that share experts") {
        Options options = with_experts({1, 1, 1}, 1, Dtype::fp64);
        options.steps = 6;
        options.slices = options.microbatches = 4;
        const std::vector<double> alone = train<double>(options);
        CHECK(worst(alone, test::run(options).losses) <= 1e-12);
        for (const std::size_t ranks : {2U, 4U}) {
            options.mesh = {ranks, 1, 1};
            options.microbatches = options.slices / ranks;
            for (const std::size_t ep : {std::size_t{1}, ranks}) {
                options.ep = ep;
                for (const auto policy : {program::PolicyKind::no_shard, program::PolicyKind::full_shard}) {
                    options.policy = {policy};
                    CAPTURE(ranks);
                    CAPTURE(ep);
                    CHECK(train<double>(options) == alone);
                }
            }
        }
    }
    TEST_CASE("with a capacity captured steps have the bits of plain ones, at whatever pace the streams work") {
        Options options = with_experts({4, 1, 1}, 2, Dtype::fp32, 5);
        options.steps = 6;
        options.microbatches = 2;
        for (const auto policy : {program::PolicyKind::no_shard, program::PolicyKind::full_shard}) {
            options.policy = {policy};
            const std::vector<double> plain = train<float>(options);
            for (const Paces paces : paced_ranks::one_lazy) {
                CHECK(train<float>(options, Steps::plain, paces) == plain);
                CHECK(train<float>(options, Steps::captured, paces) == plain);
            }
        }
    }
    TEST_CASE(
        "the traffic of experts is planned in the numbers that travel: rows in bf16 are half of those in fp32") {
        const auto planned_bytes = [](Dtype dtype) {
            std::uint64_t bytes = 0;
            for (const auto& [of, each] : planned(with_experts({4, 1, 1}, 4, dtype, 5)).collectives) {
                if (of.second == "all_to_all_uneven") { bytes += each.moved.value; }
            }
            return bytes;
        };
        CHECK(planned_bytes(Dtype::bf16) > 0);
        CHECK(planned_bytes(Dtype::fp32) == 2 * planned_bytes(Dtype::bf16));
    }
    TEST_CASE("with experts too a run takes the memory that is planned, to the byte") {
        for (const std::size_t capacity : {0U, 5U}) {
            for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
                for (const auto& [mesh, ep] :
                     {std::pair(program::MeshExtents{4, 1, 1}, 1U), {{4, 1, 1}, 4U}, {{2, 2, 1}, 2U}}) {
                    Options options = with_experts(mesh, ep, dtype, capacity);
                    options.steps = 2;
                    CAPTURE(capacity);
                    CAPTURE(mesh.describe());
                    CAPTURE(ep);
                    const Memory memory = dtype == Dtype::bf16 ? memory_of<bf16>(options) : memory_of<float>(options);
                    CHECK(memory.taken == memory.planned);
                }
            }
        }
    }
}

}  // namespace experts_test
