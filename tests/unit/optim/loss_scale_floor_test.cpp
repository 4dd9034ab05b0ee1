// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>

namespace sk = shardkit;

namespace loss_scale_floor_test {

namespace {

/// DeepSpeed's DynamicLossScaler.update_scale, line by line (runtime/fp16/loss_scaler.py).
struct DeepSpeed {
    double cur_scale;
    double scale_factor;
    std::int64_t scale_window;
    double min_scale;
    std::uint32_t delayed_shift;
    bool consecutive_hysteresis;
    std::uint32_t cur_hysteresis = delayed_shift;
    std::int64_t cur_iter = 0;
    std::int64_t last_overflow_iter = -1;

    void update_scale(bool overflow) {
        if (overflow) {
            if (delayed_shift == 1 || cur_hysteresis == 1) {
                cur_scale = std::max(cur_scale / scale_factor, min_scale);
            } else {
                cur_hysteresis -= 1;
            }
            last_overflow_iter = cur_iter;
        } else {
            if (consecutive_hysteresis) { cur_hysteresis = delayed_shift; }
            if ((cur_iter - last_overflow_iter) % scale_window == 0) {
                if (!consecutive_hysteresis) { cur_hysteresis = delayed_shift; }
                cur_scale *= scale_factor;
            }
        }
        cur_iter += 1;
    }
};

/// Apex' update_scale_hysteresis, which gives PyTorch's GradScaler one (csrc/update_scale_hysteresis.cu).
struct Apex {
    float current_scale;
    int growth_interval;
    int hysteresis;
    int growth_tracker = 0;
    int hysteresis_tracker = hysteresis;

    void update(bool found_inf) {
        if (found_inf) {
            hysteresis_tracker -= 1;
            if (hysteresis_tracker > 0) {
                growth_tracker = 0;
                return;
            }
        }
        if (found_inf) {
            current_scale *= 0.5F;
            growth_tracker = 0;
        } else if (growth_tracker + 1 == growth_interval) {
            if (std::isfinite(current_scale * 2)) { current_scale *= 2; }
            growth_tracker = 0;
        } else {
            growth_tracker += 1;
        }
        if (!found_inf) { hysteresis_tracker = hysteresis; }
    }
};

struct Weight : sk::Param<"weight", float, 40> {};

}  // namespace

TEST_CASE("LossScaleState: DeepSpeed's scales, and those of PyTorch with Apex, through random overflows") {
    std::mt19937 random(5);
    for (int round = 0; round < 200; ++round) {
        const std::uint32_t hysteresis = 1 + random() % 4;
        const auto window = static_cast<std::uint32_t>(1 + random() % 6);
        const bool consecutive = random() % 2 == 0;
        sk::LossScaleState scale(
            {.initial = 64,
             .growth_interval = window,
             .minimum = 0.5,
             .hysteresis = hysteresis,
             .forget = consecutive ? sk::ForgetOverflows::by_clean_step : sk::ForgetOverflows::by_growth});
        DeepSpeed deepspeed{64, 2, window, 0.5, hysteresis, consecutive};
        sk::LossScaleState without_floor({.initial = 64,
                                          .growth_interval = window,
                                          .minimum = std::numeric_limits<float>::min(),
                                          .hysteresis = hysteresis,
                                          .forget = sk::ForgetOverflows::by_clean_step});
        Apex apex{64, static_cast<int>(window), static_cast<int>(hysteresis)};
        std::uint64_t skipped = 0;
        for (int step = 0; step < 60; ++step) {
            const bool overflow = random() % 3 == 0;
            const auto found = overflow ? sk::FoundInf::yes : sk::FoundInf::no;
            skipped += overflow ? 1 : 0;
            scale.update(found);
            without_floor.update(found);
            deepspeed.update_scale(overflow);
            apex.update(overflow);
            CHECK(scale.value() == deepspeed.cur_scale);
            CHECK(without_floor.value() == static_cast<double>(apex.current_scale));
            CHECK(scale.last() == found);
            CHECK(scale.skipped_steps() == skipped);
        }
    }
}

TEST_CASE(
    "LossScaleState: the floor is 1, or an initial below it; what is restored is within what the options allow") {
    const auto after_overflows = [](const sk::LossScaleOptions& options) {
        sk::LossScaleState scale(options);
        for (int i = 0; i < 3000; ++i) { scale.update(sk::FoundInf::yes); }
        return scale.value();
    };
    CHECK(after_overflows({}) == 1);
    CHECK(after_overflows({.initial = 0.25}) == 0.25);
    CHECK(after_overflows({.minimum = 128}) == 128);
    CHECK(after_overflows({.minimum = 0x1p-20}) == 0x1p-20);
    const sk::LossScaleState scale({.growth_interval = 5, .minimum = 4, .hysteresis = 3});
    CHECK(scale.restored(512, 3, 2).value() == 512);
    CHECK(scale.restored(512, 3, 2).clean_steps() == 3);
    CHECK(scale.restored(512, 3, 2).overflows() == 2);
    for (const double wrong : {0.0, 1e-310, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
        CHECK(scale.restored(wrong, 9, 9).value() == 4);
        CHECK(scale.restored(wrong, 9, 9).clean_steps() == 4);
        CHECK(scale.restored(wrong, 9, 9).overflows() == 2);
    }
    CHECK(scale.restored(1e300, 0).value() == static_cast<double>(std::numeric_limits<float>::max()));
}

TEST_CASE("after 200 steps with NaN the next ones train, and a trainer can ask what was skipped") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        sk::Sharded<sk::Params<Weight>, sk::FullShard, sk::Precision<float>> layer(rank, "layer");
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        sk::LossScale scale{rank};
        CHECK_FALSE(scale.skipped());
        const auto step = [&](float gradient) {
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            gradients[Weight{}][39] = gradient * static_cast<float>(scale.value());
            accumulation.add(std::move(gradients));
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean, scale));
        };
        for (int i = 0; i < 200; ++i) { step(std::numeric_limits<float>::quiet_NaN()); }
        CHECK(scale.value() == 1);
        CHECK(scale.skipped());
        CHECK(scale.skipped_steps() == 200);
        for (int i = 0; i < 10; ++i) { step(1e-3F); }
        CHECK_FALSE(scale.skipped());
        CHECK(scale.skipped_steps() == 200);
        const auto window = layer.unshard();
        CHECK(window[Weight{}][39] == doctest::Approx(-1e-2));
    });
}

TEST_CASE("the verdict is of what the update takes: a finite gradient that its scale makes infinite skips the step") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        sk::Sharded<sk::Params<Weight>, sk::FullShard, sk::Precision<float>> layer(rank, "layer");
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        sk::LossScale scale{rank, {.initial = 0x1p-30, .minimum = 0x1p-30}};
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        gradients[Weight{}][39] = 1e35F;
        accumulation.add(std::move(gradients));
        optimizer.step(sk::reduce(std::move(accumulation), sk::sum, scale));
        CHECK(scale.skipped());
        const auto window = layer.unshard();
        CHECK(window[Weight{}][39] == 0);
    });
}

}  // namespace loss_scale_floor_test
