// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "whole_model.hpp"

using namespace train_gpt;
using namespace train_gpt::test;

namespace pass_test {

namespace {

template <class T>
double first_loss(const ModelConfig& config, BatchShape batch) {
    Tensors<T> weights(config);
    weights.fill(Initialiser(1, config));
    OwnedPass<T> pass(config, batch);
    auto tokens = random_bytes(batch.tokens(), 21);
    auto targets = random_bytes(batch.tokens(), 22);
    for (auto* const all : {&tokens, &targets}) {
        for (Token& token : *all) { token = static_cast<Token>(token % config.vocabulary); }
    }
    return forward(*pass, config, batch, weights, tokens.data(), targets.data()).mean();
}

}  // namespace

TEST_SUITE("gpt.pass") {
    TEST_CASE("an untrained model knows nothing: its loss is about ln 256 in every element type") {
        for (const HeadKind head : {HeadKind::tied, HeadKind::untied}) {
            const ModelConfig config{32, 3, 48, 4, head};
            const double reference = first_loss<double>(config, {4, 32});
            CHECK(std::abs(reference - std::log(256.0)) < 0.05);
            CHECK(std::abs(first_loss<float>(config, {4, 32}) - reference) < 1e-5);
            CHECK(std::abs(first_loss<shardkit::bf16>(config, {4, 32}) - reference) < 1e-2);
        }
    }

    TEST_CASE("an untrained model of another vocabulary has the loss of its tokens alone, not of those that pad it") {
        for (const std::size_t vocabulary : {10U, 130U, 50'257U}) {
            const ModelConfig config{32, 1, 48, 4, HeadKind::tied, 0, 2, 0, vocabulary};
            CAPTURE(vocabulary);
            CHECK(std::abs(first_loss<double>(config, {4, 32}) - std::log(static_cast<double>(vocabulary))) < 0.05);
        }
        CHECK(models[0].rows_of_vocabulary() == 50'304);
    }

    TEST_CASE("the arena is used up exactly, never exceeded, and every byte around it stays") {
        for (const std::size_t sequence : {1U, 3U, 16U}) {
            for (const std::size_t width : {1U, 7U, 32U}) {
                const ModelConfig config{sequence, 3, width, 1, HeadKind::tied};
                const BatchShape capacity{2, sequence};
                Tensors<shardkit::bf16> weights(config);
                Tensors<shardkit::bf16> gradients(config);
                weights.fill(Initialiser(1, config));
                OwnedPass<shardkit::bf16> pass(config, capacity);
                CHECK(pass.used() == pass.bytes());
                const auto tokens = random_bytes(capacity.tokens(), 1);
                forward(*pass, config, capacity, weights, tokens.data(), tokens.data());
                backward(*pass, config, weights, tokens.data(), gradients);
                CHECK(pass.guards_intact());
            }
        }
    }

    TEST_CASE("an arena that is one piece too small says what was asked and what was planned") {
        const ModelConfig config{4, 2, 8, 2, HeadKind::tied};
        const std::size_t bytes = Pass<float>::bytes(config, {}, {1, 4});
        std::vector<std::byte> memory(bytes + Arena::alignment);
        void* begin = memory.data();
        std::size_t space = memory.size();
        Arena arena(static_cast<std::byte*>(std::align(Arena::alignment, bytes, begin, space)), bytes - 1);
        Links<float> none;
        CHECK_THROWS_AS(Pass<float>(config, {}, {1, 4}, none, arena), std::logic_error);
    }

    TEST_CASE("a batch gives the same bits every time, and a token does not see later ones") {
        const ModelConfig config{12, 2, 32, 4, HeadKind::tied};
        const BatchShape batch{2, 12};
        Tensors<float> weights(config);
        weights.fill(Initialiser(9, config));
        OwnedPass<float> pass(config, batch);
        auto tokens = random_bytes(batch.tokens(), 31);
        const auto targets = random_bytes(batch.tokens(), 32);
        Tensors<float> first(config);
        Tensors<float> second(config);
        const double a = forward(*pass, config, batch, weights, tokens.data(), targets.data()).sum;
        backward(*pass, config, weights, tokens.data(), first);
        const double b = forward(*pass, config, batch, weights, tokens.data(), targets.data()).sum;
        backward(*pass, config, weights, tokens.data(), second);
        CHECK(a == b);
        for (std::size_t k = 0; k < first.all.size(); ++k) { CHECK(first.all[k].values == second.all[k].values); }

        const auto logits = [&] {
            pass->embed(batch, weights.embedding<const float*>(), tokens.data());
            for (std::size_t l = 0; l < config.layers; ++l) { pass->block(l, weights.block<const float*>(l)); }
            pass->head(weights.head<const float*>());
            return std::vector<float>(pass->logits(), pass->logits() + batch.tokens() * config.vocabulary);
        };
        const auto before = logits();
        tokens[7] ^= 0xffU;
        const auto after = logits();
        const auto row_equal = [&](std::size_t t) {
            return std::memcmp(&before[t * config.vocabulary], &after[t * config.vocabulary],
                               config.vocabulary * sizeof(float)) == 0;
        };
        for (std::size_t t = 0; t < batch.tokens(); ++t) {
            const bool sees_the_change = t >= 7 && t < batch.sequence;
            CAPTURE(t);
            CHECK(row_equal(t) == !sees_the_change);
        }
    }

    TEST_CASE("a pass over fewer and shorter sequences than its capacity gives the same loss") {
        const ModelConfig config{16, 2, 24, 3, HeadKind::tied};
        Tensors<double> weights(config);
        weights.fill(Initialiser(4, config));
        const auto tokens = random_bytes(10, 41);
        const auto targets = random_bytes(10, 42);
        OwnedPass<double> large(config, {3, 16});
        OwnedPass<double> exact(config, {1, 10});
        const BatchShape batch{1, 10};
        CHECK(forward(*large, config, batch, weights, tokens.data(), targets.data()).sum ==
              doctest::Approx(forward(*exact, config, batch, weights, tokens.data(), targets.data()).sum)
                  .epsilon(1e-14));
    }

    TEST_CASE("multiply-adds of a forward pass are the closed form") {
        const ModelConfig config{8, 3, 16, 2, HeadKind::tied};
        const BatchShape batch{4, 8};
        Tensors<float> weights(config);
        weights.fill(Initialiser(4, config));
        OwnedPass<float> pass(config, batch);
        const auto tokens = random_bytes(batch.tokens(), 1);
        const std::uint64_t before = multiply_adds().all;
        forward(*pass, config, batch, weights, tokens.data(), tokens.data());
        const std::uint64_t c = config.width;
        const std::uint64_t per_token = config.layers * (12 * c * c + 2 * c * config.sequence) + 256 * c;
        CHECK(multiply_adds().all - before == batch.tokens() * per_token);
    }
}

}  // namespace pass_test
