// SPDX-License-Identifier: Apache-2.0
// The GPT's device code, without a GPU: the stand-in runs what a GPU would be given, and the host's trainer says what
// comes out.
#include <algorithm>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include "device_training.hpp"

namespace training_test {

using namespace device_training;
using shardkit::bf16;

namespace {

Options twenty_steps(program::MeshExtents mesh, Dtype dtype) {
    Options options = test::base();
    options.mesh = mesh;
    options.dtype = dtype;
    options.batch = 8;
    options.steps = 20;
    return options;
}

template <class T>
void check_policies(Options options, double bound) {
    const std::vector<double> expected = test::run(options).losses;
    CHECK(expected.back() < expected.front() - 0.05);
    test::for_each_policy(options, [&](const Options& with) {
        CAPTURE(with.policy.text());
        const std::vector<double> plain = train<T>(with);
        CHECK(worst(plain, expected) <= bound);
        CHECK(train<T>(with, Steps::captured) == plain);
    });
}

}  // namespace

TEST_SUITE("gpt.device") {
    TEST_CASE("20 steps in fp64 have the host's losses, under every policy, plain and captured") {
        check_policies<double>(twenty_steps({4, 1, 1}, Dtype::fp64), 1e-12);
    }
    TEST_CASE("20 steps in fp32 have the host's losses, under every policy, plain and captured") {
        check_policies<float>(twenty_steps({4, 1, 1}, Dtype::fp32), 1e-5);
    }
    TEST_CASE("a model and sequences that are split have the host's losses too, in uneven microbatches") {
        for (const program::MeshExtents mesh : {program::MeshExtents{2, 2, 1}, {1, 2, 2}, {1, 1, 2}}) {
            Options options = twenty_steps(mesh, Dtype::fp64);
            options.steps = 5;
            options.batch = 6;
            options.microbatches = 2;
            options.policy = {program::PolicyKind::full_shard};
            for (const auto head : {HeadKind::tied, HeadKind::untied}) {
                options.model.head = head;
                options.model.vocabulary = head == HeadKind::tied ? bytes_vocabulary : 130;  // of 256 columns
                options.sequence_parallel = head == HeadKind::tied ? SequenceParallel::off : SequenceParallel::on;
                CAPTURE(mesh.describe());
                CHECK(worst(train<double>(options), test::run(options).losses) <= 1e-12);
            }
        }
    }
    TEST_CASE("the memory that a run takes of a device is the planned one, to the byte") {
        Options options = twenty_steps({4, 1, 1}, Dtype::fp32);
        options.steps = 2;
        options.microbatches = 2;
        const auto check = [](const Options& with) {
            CAPTURE(with.policy.text());
            CAPTURE(with.mesh.describe());
            CAPTURE(with.model.recompute);
            const Memory memory = with.dtype == Dtype::bf16 ? memory_of<bf16>(with) : memory_of<float>(with);
            CHECK(memory.taken == memory.planned);
            return memory.planned;
        };
        for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
            options.dtype = dtype;
            test::for_each_policy(options, [&](const Options& with) { check(with); });
        }
        options.policy = {program::PolicyKind::full_shard};
        options.model = {32, 3, 64, 4, HeadKind::untied};
        for (const program::MeshExtents mesh : {program::MeshExtents{1, 1, 1}, {1, 2, 2}, {2, 1, 2}}) {
            options.mesh = mesh;
            for (const auto exchange : {ContextExchange::ring, ContextExchange::gather}) {
                options.context = exchange;
                options.model.recompute = false;
                const std::size_t kept = check(options);
                options.model.recompute = true;
                CHECK(check(options) < kept);
            }
        }
    }
    TEST_CASE("a World whose options say otherwise takes what is planned for them") {
        Options sliced = twenty_steps({2, 1, 1}, Dtype::fp32);
        sliced.steps = 2;
        sliced.slices = 4;
        sliced.microbatches = 2;
        Options released = twenty_steps({2, 1, 1}, Dtype::fp32);
        released.steps = 2;
        released.release = sk::GradientRelease::at_update;
        released.clip = 0;
        for (const Options& options : {sliced, released}) {
            sk::nccl::Options of_world = gpu_ranks::patient();
            of_world.separate_reductions = false;
            of_world.compare_calls = sk::CompareCalls::each_call;
            of_world.staging_bytes = 100'000;
            const Memory memory = memory_of<float>(options, of_world);
            CHECK(memory.taken == memory.planned);
        }
    }
    TEST_CASE("steps that follow a schedule or release gradients have the bits of others, plain and captured") {
        Options options = twenty_steps({2, 1, 1}, Dtype::fp32);
        options.steps = 6;
        for (const Steps how : {Steps::plain, Steps::captured}) {
            for (const auto policy : {program::PolicyKind::shard_grad_op, program::PolicyKind::full_shard}) {
                Options with = options;
                with.policy = {policy};
                CAPTURE(with.policy.text());
                with.clip = 0;
                const std::vector<double> unclipped = train<float>(with);
                with.release = sk::GradientRelease::at_update;
                CHECK(train<float>(with, how) == unclipped);
                with.release = options.release;
                with.clip = options.clip;
                with.microbatches = 2;
                const std::vector<double> unled = train<float>(with);
                for (const std::size_t depth : {1U, 2U}) {
                    with.schedule = {ScheduleChoice::Kind::prefetch, depth};
                    CHECK(train<float>(with, how) == unled);
                }
            }
        }
    }
    TEST_CASE("slices have the same bits on any number of ranks, plain and captured, and the host's losses") {
        Options options = twenty_steps({1, 1, 1}, Dtype::fp64);
        options.steps = 6;
        options.slices = options.microbatches = 4;
        options.policy = {program::PolicyKind::full_shard};
        const std::vector<double> host = test::run(options).losses;
        const std::vector<double> alone = train<double>(options);
        CHECK(worst(alone, host) <= 1e-12);
        for (const std::size_t ranks : {2U, 4U}) {
            options.mesh = {ranks, 1, 1};
            options.microbatches = options.slices / ranks;
            CHECK(train<double>(options) == alone);
            CHECK(train<double>(options, Steps::captured) == alone);
        }
    }
    TEST_CASE("bias and GELU in one product with theirs have the losses of the host, which makes them one by one") {
        Options options = twenty_steps({1, 1, 1}, Dtype::fp32);
        CHECK(worst(train<float>(options), test::run(options).losses) <= 1e-5);
        // In a block: queries, keys and values; up, and down's gradient.
        CHECK(standin::calls("cublasLtMatmul") == options.steps * options.model.layers * 3);
        // GELU's inputs in rows of 20, where cuBLASLt needs a multiple of 8.
        options.model.width = 5;
        options.model.heads = 1;
        CHECK(worst(train<float>(options), test::run(options).losses) <= 1e-5);
        CHECK(standin::calls("cublasLtMatmul") == 0);
        CHECK(standin::calls("cublasGemm") > 0);
    }
    TEST_CASE("captured steps have the bits of plain ones, at whatever pace the streams work") {
        Options options = twenty_steps({2, 1, 1}, Dtype::fp32);
        options.steps = 6;
        options.microbatches = 2;
        for (const auto policy : {program::PolicyKind::no_shard, program::PolicyKind::full_shard}) {
            options.policy = {policy};
            const std::vector<double> plain = train<float>(options);
            Options made_again = options;
            made_again.model.recompute = true;
            CHECK(train<float>(made_again, Steps::captured) == plain);
            for (const Paces paces : paced_ranks::one_lazy) {
                CHECK(train<float>(options, Steps::plain, paces) == plain);
                CHECK(train<float>(options, Steps::captured, paces) == plain);
            }
        }
    }
}

}  // namespace training_test
