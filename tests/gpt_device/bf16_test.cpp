// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/core/bf16.hpp>

#include "../../examples/train_gpt/model/host_place.hpp"
#include "device_training.hpp"

namespace bf16_test {

using namespace device_training;
using shardkit::bf16;

namespace {

/// A host that stores activations in bf16, with the order of sums of a device on the stand-in: products with one fp32
/// sum for each element, and columns in parts.
struct EmulatedPlace : HostPlace {
    template <class T>
    using Storage = T;
    static constexpr std::size_t column_parts = DevicePlace::column_parts;

    template <class Work>
    static void columns(std::size_t n, Work work) {
        for (std::size_t part = 0; part < column_parts; ++part) {
            for (std::size_t c = 0; c < n; ++c) { work(Columns<1>{c}, part); }
        }
    }
    template <class S, class R>
    static void multiply(Matrix<const bf16> a, Matrix<const bf16> b, Matrix<R> result, Into into, float scale = 1,
                         std::size_t count = 1) {
        const auto at = [](const auto& m, std::size_t row, std::size_t column) {
            return m.order == Order::transposed ? column * m.stride + row : row * m.stride + column;
        };
        for (std::size_t r = 0; r < count; ++r) {
            for (std::size_t i = 0; i < result.rows; ++i) {
                for (std::size_t j = 0; j < result.columns; ++j) {
                    float sum = 0;
                    for (std::size_t k = 0; k < a.columns; ++k) {
                        sum += static_cast<float>(a.data[r * a.next + at(a, i, k)]) *
                               static_cast<float>(b.data[r * b.next + at(b, k, j)]);
                    }
                    R& to = result.data[r * result.next + at(result, i, j)];
                    to = static_cast<R>(into == Into::add ? scale * sum + static_cast<float>(to) : scale * sum);
                }
            }
        }
    }
    // As epilogues of a product in fp32, which is rounded once.
    static bool multiply_biased(Matrix<const bf16> a, Matrix<const bf16> b, const bf16* bias, Matrix<bf16> y,
                                bf16* gelu) {
        const std::vector<float> sums = product(a, b, y);
        for (std::size_t i = 0; i < sums.size(); ++i) {
            const float v = sums[i] + static_cast<float>(bias[i % y.columns]);
            y.data[i] = static_cast<bf16>(v);
            if (gelu != nullptr) { gelu[i] = static_cast<bf16>(0.5F * v * (1.0F + tangent(v))); }
        }
        return true;
    }
    static bool multiply_by_gelu_slope(Matrix<const bf16> a, Matrix<const bf16> b, const bf16* x,
                                       Matrix<bf16> result) {
        const std::vector<float> sums = product(a, b, result);
        for (std::size_t i = 0; i < sums.size(); ++i) {
            const auto v = static_cast<float>(x[i]);
            const float t = tangent(v);
            const float inner = 0.7978845608F * (1.0F + 3.0F * 0.044715F * v * v);
            result.data[i] = static_cast<bf16>(sums[i] * (0.5F * (1.0F + t) + 0.5F * v * (1.0F - t * t) * inner));
        }
        return true;
    }

  private:
    static float tangent(float v) { return std::tanh(0.7978845608F * (v + 0.044715F * v * v * v)); }
    static std::vector<float> product(Matrix<const bf16> a, Matrix<const bf16> b, Matrix<bf16> like) {
        std::vector<float> sums(like.rows * like.columns);
        multiply<bf16>(a, b, matrix(sums.data(), like.rows, like.columns), Into::overwrite);
        return sums;
    }
};

/// The losses of one rank's steps in host memory.
std::vector<double> emulate(const Options& options) {
    std::vector<double> losses;
    sk::self::run(sk::DeviceMesh(1, 1, 1), [&](auto& rank) {
        const Job job{options, test::corpus()};
        Trainer<bf16, EmulatedPlace> trainer(rank, job, [](const auto& groups, const Options& with) {
            return make_adamw<sk::StateFormat::full>(groups, with);
        });
        for (std::size_t step = 0; step < options.steps; ++step) {
            trainer.load(step);
            trainer.step();
            trainer.keep_losses(step);
            losses.push_back(trainer.losses(step, 1).front());
        }
    });
    return losses;
}

}  // namespace

TEST_CASE("gpt.device: activations in bf16 with sums in fp32 have the losses of a host with the same roundings") {
    Options options = test::base();
    options.dtype = Dtype::bf16;
    options.batch = 8;
    options.steps = 20;
    options.microbatches = 2;
    for (const HeadKind head : {HeadKind::tied, HeadKind::untied}) {
        options.model.head = head;
        const std::vector<double> emulated = emulate(options);
        CHECK(worst(train<bf16>(options), emulated) == 0);
        // Beside the rounding of activations it is the training of fp32.
        Options full = options;
        full.dtype = Dtype::fp32;
        const double distance = worst(emulated, test::run(full).losses);
        CHECK(distance > 1e-4);
        CHECK(distance < 2e-2);
    }
    // With experts the roundings are those of a host too, and of experts that ranks share each rounds its own.
    options.model.head = HeadKind::tied;
    Options of_experts = options;
    of_experts.model.experts = 4;
    const std::vector<double> one_rank = emulate(of_experts);
    CHECK(worst(train<bf16>(of_experts), one_rank) == 0);
    of_experts.microbatches = 1;
    for (const program::MeshExtents mesh : {program::MeshExtents{2, 1, 1}, {2, 2, 1}}) {
        of_experts.mesh = mesh;
        of_experts.ep = 2;
        CHECK(worst(train<bf16>(of_experts), one_rank) < 1e-2);
    }
    // Ranks round the gradients of their own sequences.
    options.model.head = HeadKind::tied;
    options.steps = 5;
    const std::vector<double> emulated = emulate(options);
    options.mesh = {4, 1, 1};
    options.microbatches = 1;
    test::for_each_policy(options, [&](const Options& with) {
        CAPTURE(with.policy.text());
        CHECK(worst(train<bf16>(with), emulated) < 1e-2);
    });
    // Parts of the model and of sequences add in fp32.
    options.policy = {program::PolicyKind::full_shard};
    for (const program::MeshExtents mesh : {program::MeshExtents{1, 2, 1}, {1, 1, 2}, {2, 2, 2}}) {
        options.mesh = mesh;
        for (const auto exchange : {ContextExchange::ring, ContextExchange::gather}) {
            options.context = exchange;
            options.sequence_parallel =
                exchange == ContextExchange::ring ? SequenceParallel::on : SequenceParallel::off;
            CAPTURE(mesh.describe());
            CHECK(worst(train<bf16>(options), emulated) < 1e-2);
        }
    }
}

}  // namespace bf16_test
