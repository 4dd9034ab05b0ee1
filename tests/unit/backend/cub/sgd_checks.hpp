// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include <shardkit/backend/host/enqueued_kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/optim/update.hpp>

#include "each_precision.hpp"
#include "machine.hpp"
#include "step_data.hpp"

namespace shardkit::test {

template <class A>
std::vector<SgdUpdate<A>> sgd_updates(Momentum rule) {
    const double momentum = rule == Momentum::none ? 0 : 0.9;
    return {sgd_update<A>({.learning_rate = 0.1, .rule = rule, .momentum = momentum, .weight_decay = 0.01}, 0.5),
            sgd_update<A>({.learning_rate = 0.3, .rule = rule, .momentum = momentum}, 1),
            sgd_update<A>({.learning_rate = 1e-3, .rule = rule, .momentum = momentum / 2}, -2)};
}

template <class Master, class Gather, class Gradient>
struct SgdData {
    using A = Arithmetic<Master>;
    std::vector<Master> master;
    std::vector<Gather> gathered;
    std::vector<Gradient> gradient;
    std::vector<A> buffer;

    explicit SgdData(std::size_t count)
        : master(random_elements<Master>(count, 1)),
          gathered(count, rounded<Gather>(-77)),
          gradient(random_elements<Gradient>(count, 2)),
          buffer(random_elements<A>(count, 3)) {}

    UpdateSpans<Master, Gather, Gradient, 0> spans() { return {master, gathered, gradient, {}}; }
    UpdateSpans<Master, Gather, Gradient, 1> momentum_spans() { return {master, gathered, gradient, {buffer}}; }

    /// The functor, one element at a time.
    void step(const std::vector<UpdateRange>& runs, const std::vector<SgdUpdate<A>>& updates) {
        for (const UpdateRange& run : runs) {
            for (std::size_t i = run.begin; i < run.end; ++i) {
                A parameter = static_cast<A>(master[i]);
                const A g = static_cast<A>(static_cast<Arithmetic<Gradient>>(gradient[i]));
                if (updates[run.update].rule == Momentum::none) {
                    updates[run.update](parameter, g);
                } else {
                    updates[run.update](parameter, buffer[i], g);
                }
                master[i] = static_cast<Master>(parameter);
                gathered[i] =
                    static_cast<Gather>(static_cast<Arithmetic<Gather>>(static_cast<Arithmetic<Master>>(master[i])));
            }
        }
    }
};

/// The same in a machine's memory.
template <class M, class Master, class Gather, class Gradient>
class SgdArrays {
    using Data = SgdData<Master, Gather, Gradient>;
    using A = Arithmetic<Master>;

  public:
    SgdArrays(M& machine, const Data& data, const Offsets& at)
        : master_(machine, data.master, at[0]),
          gathered_(machine, data.gathered, at[1]),
          gradient_(machine, data.gradient, at[2]),
          buffer_(machine, data.buffer, at[3]) {}

    UpdateSpans<Master, Gather, Gradient, 0> spans() const {
        return {master_.span(), gathered_.span(), gradient_.view(), {}};
    }
    UpdateSpans<Master, Gather, Gradient, 1> momentum_spans() const {
        return {master_.span(), gathered_.span(), gradient_.view(), {buffer_.span()}};
    }
    void check_equal(const Data& expected) const {
        CHECK(same_bits(master_.values(), expected.master));
        CHECK(same_bits(gathered_.values(), expected.gathered));
        CHECK(same_bits(gradient_.values(), expected.gradient));
        CHECK(same_bits(buffer_.values(), expected.buffer));
    }

  private:
    Array<Master, M> master_;
    Array<Gather, M> gathered_;
    Array<Gradient, M> gradient_;
    Array<A, M> buffer_;
};

/// call(the spans that the rule takes: with momentum, or without).
template <class Data, class Call>
void with_sgd_spans(Momentum rule, Data&& data, const Call& call) {
    if (rule == Momentum::none) {
        call(data.spans());
    } else {
        call(data.momentum_spans());
    }
}

template <class Master, class Gather, class Gradient, class M>
void check_sgd_of(M& machine, Momentum rule, std::size_t size, const Offsets& at,
                  const std::vector<UpdateRange>& runs, std::uint32_t skip) {
    machine.clear();
    const auto updates = sgd_updates<Arithmetic<Master>>(rule);
    SgdData<Master, Gather, Gradient> data(size);
    const SgdArrays<M, Master, Gather, Gradient> arrays(machine, data, at);
    const auto runs_there = array(machine, runs);
    const auto updates_there = array(machine, updates);
    const auto skip_there = array(machine, std::vector<std::uint32_t>{skip});
    with_sgd_spans(rule, arrays, [&](const auto& spans) {
        M::Kernels::update(machine.stream(), runs_there.view(), updates_there.view().data(), skip_there.view().data(),
                           spans);
    });
    if (skip == 0) { data.step(runs, updates); }
    arrays.check_equal(data);
}

/// What the engines on the host's memory do.
template <class Master, class Gather, class Gradient, class M>
void check_sgd_as_host(M& machine, Momentum rule) {
    for (const std::size_t size : sizes()) {
        for (const auto& runs : runs_of(size)) {
            machine.clear();
            const auto updates = sgd_updates<Arithmetic<Master>>(rule);
            SgdData<Master, Gather, Gradient> data(size);
            const SgdArrays<M, Master, Gather, Gradient> arrays(machine, data, {{0}});
            const std::uint32_t skip = 0;
            const auto runs_there = array(machine, runs);
            const auto updates_there = array(machine, updates);
            const auto skip_there = array(machine, std::vector<std::uint32_t>{skip});
            with_sgd_spans(rule, arrays, [&](const auto& spans) {
                M::Kernels::update(machine.stream(), runs_there.view(), updates_there.view().data(),
                                   skip_there.view().data(), spans);
            });
            with_sgd_spans(rule, data, [&](const auto& spans) {
                host::EnqueuedKernels<InlineStream>::update(InlineStream{}, runs, updates.data(), &skip, spans);
            });
            arrays.check_equal(data);
        }
    }
}

template <class M>
void check_sgd_sizes(M& machine) {
    machine.clear();
    SgdData<float, bf16, float> data(8);
    const SgdArrays<M, float, bf16, float> arrays(machine, data, {{0}});
    const auto updates = array(machine, sgd_updates<float>(Momentum::classical));
    const auto throws = [&](const auto& spans, const char* text) {
        CHECK_THROWS_WITH_AS(
            M::Kernels::update(machine.stream(), std::span<const UpdateRange>(), updates.view().data(),
                               static_cast<const std::uint32_t*>(nullptr), spans),
            text, std::invalid_argument);
    };
    auto spans = arrays.momentum_spans();
    spans.gradient = spans.gradient.first(7);
    throws(spans, "gpu::Kernels::update: gradient has 7 elements, expected 8");
    spans = arrays.momentum_spans();
    spans.states[0] = spans.states[0].first(6);
    throws(spans, "gpu::Kernels::update: a state has 6 elements, expected 8");
    auto stateless = arrays.spans();
    stateless.gathered = {};
    throws(stateless, "gpu::Kernels::update: gathered has 0 elements, expected 8");
}

template <class M>
void check_sgd(M& machine) {
    const Momentum rules[] = {Momentum::none, Momentum::classical, Momentum::nesterov};
    SUBCASE("every size, start and way to cut into runs") {
        for (const Momentum rule : rules) {
            for (const std::size_t size : sizes()) {
                for (const Offsets& at : offsets()) {
                    for (const auto& runs : runs_of(size)) {
                        check_sgd_of<float, bf16, float>(machine, rule, size, at, runs, 0);
                    }
                }
            }
        }
    }
    SUBCASE("every precision") {
        each_precision([&]<class Master, class Gather, class Gradient>(Type<Master>, Type<Gather>, Type<Gradient>) {
            for (const Momentum rule : rules) {
                check_sgd_of<Master, Gather, Gradient>(machine, rule, 100, {{0}}, runs_of(100).back(), 0);
                check_sgd_of<Master, Gather, Gradient>(machine, rule, 67, {{3}}, runs_of(67).front(), 0);
                check_sgd_of<Master, Gather, Gradient>(machine, rule, 67, {{0, 1}}, runs_of(67).front(), 0);
                check_sgd_of<Master, Gather, Gradient>(machine, rule, 67, {{0}}, runs_of(67).front(), 1);
            }
        });
    }
    SUBCASE("as on the host") {
        for (const Momentum rule : rules) {
            check_sgd_as_host<float, float, float>(machine, rule);
            check_sgd_as_host<float, bf16, float>(machine, rule);
            check_sgd_as_host<double, double, double>(machine, rule);
        }
    }
    SUBCASE("sizes that disagree") { check_sgd_sizes(machine); }
}

}  // namespace shardkit::test
