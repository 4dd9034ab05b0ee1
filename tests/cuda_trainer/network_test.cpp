// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "../../examples/cuda_trainer/network.hpp"
#include "largest_difference.hpp"
#include "launch_loop.hpp"
#include "standin.hpp"

namespace network_test {

namespace {

using namespace cuda_trainer;

constexpr Shape small{.context = 3, .width = 6, .layers = 2, .embedding = 4};
constexpr std::size_t batch_size = 5;
const std::string fox = "the quick brown fox jumps over the lazy dog, and then it sleeps";

/// A whole model on a GPU of the stand-in, in type T.
template <class T>
class Model {
  public:
    Model()
        : gpu_(0),
          text_(fox.size(), gpu_.stream),
          bytes_(batch_size * (small.context + 1), gpu_.stream),
          parameters_(small.all(), gpu_.stream),
          gradients_(small.all(), gpu_.stream),
          loss_(1, gpu_.stream),
          network_(gpu_, small, batch_size) {
        upload(gpu_.stream, text_.data(), reinterpret_cast<const std::uint8_t*>(fox.data()), fox.size());
        const Samples samples{text_.data(), fox.size() - small.context, 7};
        launch(gpu_.stream, bytes_.size(),
               kernels::CopySamples{samples, 11, 0, batch_size, small.context + 1, bytes_.data()});
    }

    /// The loss of these parameters; the gradients are added to.
    T pass(const std::vector<T>& parameters) {
        upload(gpu_.stream, parameters_.data(), parameters.data(), parameters.size());
        check(cudaMemsetAsync(loss_.data(), 0, sizeof(T), gpu_.stream), "cudaMemsetAsync");
        const Batch batch{bytes_.data(), small.context, batch_size};
        const Pointers w(parameters_.data());
        const Pointers g(gradients_.data());
        network_.embed(w.embedding.read_only(), batch);
        for (std::size_t l = 0; l < small.layers; ++l) { network_.block(l, w.blocks[l].read_only()); }
        network_.head(w.head.read_only(), g.head, batch, T{1} / static_cast<T>(batch_size), loss_.data());
        for (std::size_t l = small.layers; l-- > 0;) {
            network_.block_backward(l, w.blocks[l].read_only(), g.blocks[l]);
        }
        network_.embed_backward(w.embedding.read_only(), g.embedding, batch);
        T loss = 0;
        download(gpu_.stream, &loss, loss_.data(), 1);
        return loss;
    }
    std::vector<T> gradients() const {
        std::vector<T> values(small.all());
        download(gpu_.stream, values.data(), gradients_.data(), values.size());
        return values;
    }

  private:
    struct Pointers {
        EmbeddingWeights<T> embedding;
        std::vector<BlockWeights<T>> blocks;
        HeadWeights<T> head;

        explicit Pointers(T* at) {
            const auto take = [&](std::size_t count) {
                at += count;
                return at - count;
            };
            embedding = {take(small.table()), take(small.projection()), take(small.width)};
            for (std::size_t l = 0; l < small.layers; ++l) {
                blocks.push_back(
                    {take(small.expand()), take(small.hidden()), take(small.contract()), take(small.width)});
            }
            head = {take(small.logits()), take(Shape::vocabulary)};
        }
    };

    Gpu gpu_;
    DeviceArray<std::uint8_t> text_, bytes_;
    DeviceArray<T> parameters_, gradients_, loss_;
    Network<T> network_;
};

/// Nothing is zero, so that every product counts.
template <class T>
std::vector<T> parameters() {
    std::vector<T> values(small.all());
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<T>(static_cast<double>(mix(i) >> 11U) * 0x1p-53 - 0.5);
    }
    return values;
}

/// The whole of a parameter in a few steps, and every element of the small ones.
bool looked_at(std::size_t i) { return i % 7 == 0 || i >= small.all() - Shape::vocabulary; }

}  // namespace

TEST_CASE("network: every gradient is the central difference of the loss") {
    for (const standin::Pace pace : {standin::Pace::lazy, standin::Pace::eager}) {
        standin::reset();
        standin::set_pace(pace);
        {
            Model<double> model;
            std::vector<double> at = parameters<double>();
            model.pass(at);
            const std::vector<double> gradients = model.gradients();
            // The error of a central difference is of the order of h^2 times the third derivative, plus the loss's
            // rounding over h: 1e-10 of each here.
            constexpr double h = 1e-5;
            double worst = 0;
            std::size_t nonzero = 0;
            for (std::size_t i = 0; i < at.size(); ++i) {
                if (!looked_at(i)) { continue; }
                const double value = at[i];
                at[i] = value + h;
                const double above = model.pass(at);
                at[i] = value - h;
                const double below = model.pass(at);
                at[i] = value;
                worst = larger(worst, std::abs((above - below) / (2 * h) - gradients[i]));
                nonzero += gradients[i] != 0 ? 1U : 0U;
            }
            CHECK(worst < 1e-8);
            CHECK(nonzero > 300);
        }
        CHECK(standin::live() == standin::Live{});
    }
}

TEST_CASE("network: gradients are added to, and in fp32 they are those of double") {
    standin::reset();
    Model<float> narrow;
    Model<double> wide;
    const float loss = narrow.pass(parameters<float>());
    CHECK(narrow.pass(parameters<float>()) == loss);
    CHECK(static_cast<double>(loss) == doctest::Approx(wide.pass(parameters<double>())).epsilon(1e-5));
    const std::vector<float> twice = narrow.gradients();
    const std::vector<double> once = wide.gradients();
    double worst = 0;
    double greatest = 0;
    for (std::size_t i = 0; i < once.size(); ++i) {
        worst = larger(worst, std::abs(static_cast<double>(twice[i]) - 2 * once[i]));
        greatest = std::max(greatest, std::abs(once[i]));
    }
    // Sums of at most some hundred products of numbers below one, with 24 bits.
    CHECK(worst < 1e-5 * greatest);
    CHECK(greatest > 0.01);
}

}  // namespace network_test
