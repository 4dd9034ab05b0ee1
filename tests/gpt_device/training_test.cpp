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
        CHECK(worst(train<T>(with), expected) <= bound);
    });
}

struct Memory {
    std::size_t planned, taken;
};
/// Of the first rank of a run, at most.
Memory memory_of(const Options& options) {
    gpu_ranks::restart();
    const sk::nccl::UniqueId id = sk::nccl::UniqueId::create();
    Memory memory{};
    const auto outcomes = gpu_ranks::each_in_a_thread(options.mesh.world(), [&](std::size_t number) {
        sk::nccl::Options of_world = gpu_ranks::patient();
        of_world.arena_chunk_bytes = 1;  // a chunk of its own for every buffer
        sk::nccl::World world(id, options.mesh.world(), number, of_world);
        using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
        sk::Rank<Engine, Mesh> rank(Mesh(options.mesh.dp, options.mesh.tp, options.mesh.cp), gpu_ranks::Comm(world),
                                    {}, world.streams());
        const Job job{options, test::corpus()};
        DeviceTrainer<Engine, float> trainer(rank, job, 4096);
        for (std::size_t step = 0; step < options.steps; ++step) {
            trainer.load(step);
            trainer.step();
            trainer.keep_losses(step);
        }
        CHECK(trainer.losses(0, options.steps).back() > 0);
        if (number == 0) { memory = {trainer.planned().total(), standin::peak_device_bytes(0)}; }
        world.finish();
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(memory.taken >= memory.planned);
    return memory;
}

}  // namespace

TEST_SUITE("gpt.device") {
    TEST_CASE("20 steps in fp64 have the host's losses, under every policy") {
        check_policies<double>(twenty_steps({4, 1, 1}, Dtype::fp64), 1e-12);
    }
    TEST_CASE("20 steps in fp32 have the host's losses, under every policy") {
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
    TEST_CASE("the memory that a run takes is the planned one, beside what a World holds whatever the model") {
        for (const program::MeshExtents mesh : {program::MeshExtents{1, 1, 1}, {1, 2, 2}}) {
            std::vector<std::size_t> planned, beside;
            for (const std::size_t layers : {3U, 6U}) {
                for (const bool recompute : {false, true}) {
                    Options options = twenty_steps(mesh, Dtype::fp32);
                    options.policy = {program::PolicyKind::full_shard};
                    options.model = {32, layers, 64, 4, HeadKind::tied};
                    options.model.recompute = recompute;
                    options.steps = 2;
                    const Memory memory = memory_of(options);
                    planned.push_back(memory.planned);
                    beside.push_back(memory.taken - memory.planned);
                    CAPTURE(mesh.describe());
                    // What a step's buffers and tables are rounded to.
                    CHECK(std::max(beside.back(), beside[0]) - std::min(beside.back(), beside[0]) < planned[0] / 100);
                }
            }
            CHECK(planned[1] < planned[0] - planned[0] / 10);
            CHECK(planned[3] > planned[1] + planned[1] / 10);
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
