// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <shardkit/backend/host/enqueued_kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/update.hpp>

#include "each_precision.hpp"
#include "machine.hpp"
#include "step_data.hpp"

namespace shardkit::test {

template <class A>
std::vector<AdamWUpdate<A>> adamw_updates() {
    return {adamw_update<A>({.learning_rate = 1e-2, .weight_decay = 0.1}, 0.9, 0.999, 0.5),
            adamw_update<A>({.learning_rate = 3e-3, .weight_decay = 0}, 0.81, 0.998, 1),
            adamw_update<A>({.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.9}, 0.25, 0.81, -2)};
}

template <class Master, class Gather, class Gradient>
struct AdamWData {
    using A = Arithmetic<Master>;
    std::vector<Master> master;
    std::vector<Gather> gathered;
    std::vector<Gradient> gradient;
    std::vector<A> exp_avg;
    std::vector<A> exp_avg_sq;

    explicit AdamWData(std::size_t count)
        : master(random_elements<Master>(count, 1)),
          gathered(count, rounded<Gather>(-77)),
          gradient(random_elements<Gradient>(count, 2)),
          exp_avg(random_elements<A>(count, 3)),
          exp_avg_sq(random_squares<A>(count, 4)) {}

    UpdateSpans<Master, Gather, Gradient, 2> spans() { return {master, gathered, gradient, {exp_avg, exp_avg_sq}}; }

    /// The functor, one element at a time.
    void step(const std::vector<UpdateRange>& runs, const std::vector<AdamWUpdate<A>>& updates) {
        for (const UpdateRange& run : runs) {
            for (std::size_t i = run.begin; i < run.end; ++i) {
                A parameter = static_cast<A>(master[i]);
                updates[run.update](parameter, exp_avg[i], exp_avg_sq[i],
                                    static_cast<A>(static_cast<Arithmetic<Gradient>>(gradient[i])));
                master[i] = static_cast<Master>(parameter);
                gathered[i] =
                    static_cast<Gather>(static_cast<Arithmetic<Gather>>(static_cast<Arithmetic<Master>>(master[i])));
            }
        }
    }
};

/// The same in a machine's memory.
template <class M, class Master, class Gather, class Gradient>
class AdamWArrays {
    using Data = AdamWData<Master, Gather, Gradient>;
    using A = Arithmetic<Master>;

  public:
    AdamWArrays(M& machine, const Data& data, const Offsets& at)
        : master_(machine, data.master, at[0]),
          gathered_(machine, data.gathered, at[1]),
          gradient_(machine, data.gradient, at[2]),
          exp_avg_(machine, data.exp_avg, at[3]),
          exp_avg_sq_(machine, data.exp_avg_sq, at[4]) {}

    UpdateSpans<Master, Gather, Gradient, 2> spans() const {
        return {master_.span(), gathered_.span(), gradient_.view(), {exp_avg_.span(), exp_avg_sq_.span()}};
    }
    void check_equal(const Data& expected) const {
        CHECK(same_bits(master_.values(), expected.master));
        CHECK(same_bits(gathered_.values(), expected.gathered));
        CHECK(same_bits(gradient_.values(), expected.gradient));
        CHECK(same_bits(exp_avg_.values(), expected.exp_avg));
        CHECK(same_bits(exp_avg_sq_.values(), expected.exp_avg_sq));
    }

  private:
    Array<Master, M> master_;
    Array<Gather, M> gathered_;
    Array<Gradient, M> gradient_;
    Array<A, M> exp_avg_;
    Array<A, M> exp_avg_sq_;
};

template <class Master, class Gather, class Gradient, class M>
void check_adamw_of(M& machine, std::size_t size, const Offsets& at, const std::vector<UpdateRange>& runs,
                    std::uint32_t skip) {
    machine.clear();
    const auto updates = adamw_updates<Arithmetic<Master>>();
    AdamWData<Master, Gather, Gradient> data(size);
    const AdamWArrays<M, Master, Gather, Gradient> arrays(machine, data, at);
    const auto runs_there = array(machine, runs);
    const auto updates_there = array(machine, updates);
    const auto skip_there = array(machine, std::vector<std::uint32_t>{skip});
    M::Kernels::update(machine.stream(), runs_there.view(), updates_there.view().data(), skip_there.view().data(),
                       arrays.spans());
    if (skip == 0) { data.step(runs, updates); }
    arrays.check_equal(data);
}

/// The master itself gathered: the span is empty.
template <class T, class M>
void check_adamw_in_master(M& machine) {
    machine.clear();
    const std::size_t size = 100;
    const auto updates = adamw_updates<Arithmetic<T>>();
    AdamWData<T, T, T> data(size);
    const AdamWArrays<M, T, T, T> arrays(machine, data, {{2}});
    const std::vector<UpdateRange> runs{{0, 40, 0}, {43, size, 2}};
    const auto runs_there = array(machine, runs);
    const auto updates_there = array(machine, updates);
    auto spans = arrays.spans();
    spans.gathered = {};
    M::Kernels::update(machine.stream(), runs_there.view(), updates_there.view().data(),
                       static_cast<const std::uint32_t*>(nullptr), spans);
    const auto untouched = data.gathered;
    data.step(runs, updates);
    data.gathered = untouched;
    arrays.check_equal(data);
}

/// What the engines on the host's memory do.
template <class Master, class Gather, class Gradient, class M>
void check_adamw_as_host(M& machine) {
    for (const std::size_t size : sizes()) {
        for (const auto& runs : runs_of(size)) {
            machine.clear();
            const auto updates = adamw_updates<Arithmetic<Master>>();
            AdamWData<Master, Gather, Gradient> data(size);
            const AdamWArrays<M, Master, Gather, Gradient> arrays(machine, data, {{0}});
            const std::uint32_t skip = 0;
            const auto runs_there = array(machine, runs);
            const auto updates_there = array(machine, updates);
            const auto skip_there = array(machine, std::vector<std::uint32_t>{skip});
            M::Kernels::update(machine.stream(), runs_there.view(), updates_there.view().data(),
                               skip_there.view().data(), arrays.spans());
            host::EnqueuedKernels<InlineStream>::update(InlineStream{}, runs, updates.data(), &skip, data.spans());
            arrays.check_equal(data);
        }
    }
}

template <class M>
void check_adamw_sizes(M& machine) {
    machine.clear();
    AdamWData<float, bf16, float> data(8);
    const AdamWArrays<M, float, bf16, float> arrays(machine, data, {{0}});
    const auto updates = array(machine, adamw_updates<float>());
    const auto throws = [&](const auto& spans, const char* text) {
        CHECK_THROWS_WITH_AS(
            M::Kernels::update(machine.stream(), std::span<const UpdateRange>(), updates.view().data(),
                               static_cast<const std::uint32_t*>(nullptr), spans),
            text, std::invalid_argument);
    };
    auto spans = arrays.spans();
    spans.gradient = spans.gradient.first(7);
    throws(spans, "gpu::Kernels::update: gradient has 7 elements, expected 8");
    spans = arrays.spans();
    spans.states[0] = spans.states[0].first(6);
    throws(spans, "gpu::Kernels::update: a state has 6 elements, expected 8");
    spans = arrays.spans();
    spans.states[1] = spans.states[1].first(5);
    throws(spans, "gpu::Kernels::update: a state has 5 elements, expected 8");
    spans = arrays.spans();
    spans.gathered = {};
    throws(spans, "gpu::Kernels::update: gathered has 0 elements, expected 8");
}

template <class M>
void check_adamw(M& machine) {
    SUBCASE("every size, start and way to cut into runs") {
        for (const std::size_t size : sizes()) {
            for (const Offsets& at : offsets()) {
                for (const auto& runs : runs_of(size)) {
                    check_adamw_of<float, float, float>(machine, size, at, runs, 0);
                    check_adamw_of<float, bf16, float>(machine, size, at, runs, 0);
                }
            }
        }
    }
    SUBCASE("every precision") {
        each_precision([&]<class Master, class Gather, class Gradient>(Type<Master>, Type<Gather>, Type<Gradient>) {
            for (const Offsets& at : offsets()) {
                check_adamw_of<Master, Gather, Gradient>(machine, 100, at, runs_of(100).back(), 0);
                check_adamw_of<Master, Gather, Gradient>(machine, 67, at, runs_of(67).front(), 0);
            }
        });
    }
    SUBCASE("skipped") {
        each_precision([&]<class Master, class Gather, class Gradient>(Type<Master>, Type<Gather>, Type<Gradient>) {
            check_adamw_of<Master, Gather, Gradient>(machine, 100, {{0}}, runs_of(100).front(), 1);
            check_adamw_of<Master, Gather, Gradient>(machine, 9, {{1}}, runs_of(9).front(), 0xffffffffU);
        });
    }
    SUBCASE("the master itself gathered") {
        each_floating([&]<class T>(Type<T>) { check_adamw_in_master<T>(machine); });
    }
    SUBCASE("as on the host") {
        check_adamw_as_host<float, float, float>(machine);
        check_adamw_as_host<float, bf16, float>(machine);
        check_adamw_as_host<float, fp16, fp16>(machine);
        check_adamw_as_host<double, double, double>(machine);
    }
    SUBCASE("sizes that disagree") { check_adamw_sizes(machine); }
}

}  // namespace shardkit::test
