// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/rank/launch_batch.hpp>

#include "../host/enqueued_kernels.hpp"
#include "each_precision.hpp"
#include "machine.hpp"
#include "step_data.hpp"

// The kernel `update` with each optimizer's functor. An optimizer is a Case: Case::state_count, and updates<A>(), of
// which there are three.

namespace shardkit::test {

/// What an update reads and writes. States from the second on are not negative.
template <class Master, class Gather, class Gradient, std::size_t StateCount>
struct UpdateData {
    using A = Arithmetic<Master>;
    std::vector<Master> master;
    std::vector<Gather> gathered;
    std::vector<Gradient> gradient;
    std::array<std::vector<A>, StateCount> states;

    explicit UpdateData(std::size_t count)
        : master(random_elements<Master>(count, 1)),
          gathered(count, rounded<Gather>(-77)),
          gradient(random_elements<Gradient>(count, 2)) {
        for (std::size_t s = 0; s < states.size(); ++s) {
            const auto seed = static_cast<std::uint32_t>(3 + s);
            states[s] = s == 0 ? random_elements<A>(count, seed) : random_squares<A>(count, seed);
        }
    }

    rules::UpdateSpans<Master, Gather, Gradient, StateCount> spans() {
        rules::UpdateSpans<Master, Gather, Gradient, StateCount> all{master, gathered, gradient, {}};
        for (std::size_t s = 0; s < states.size(); ++s) { all.states[s] = states[s]; }
        return all;
    }

    /// The functor, one element at a time.
    template <class Update>
    void step(const std::vector<rules::UpdateRange>& runs, const std::vector<Update>& updates) {
        for (const rules::UpdateRange& run : runs) {
            for (std::size_t i = run.begin; i < run.end; ++i) {
                A parameter = static_cast<A>(master[i]);
                const A g = static_cast<A>(static_cast<Arithmetic<Gradient>>(gradient[i]));
                [&]<std::size_t... S>(std::index_sequence<S...>) {
                    updates[run.update](parameter, states[S][i]..., g);
                }
                (std::make_index_sequence<StateCount>{});
                master[i] = static_cast<Master>(parameter);
                gathered[i] =
                    static_cast<Gather>(static_cast<Arithmetic<Gather>>(static_cast<Arithmetic<Master>>(master[i])));
            }
        }
    }
};

/// The same in a machine's memory.
template <class M, class Master, class Gather, class Gradient, std::size_t StateCount>
class UpdateArrays {
    using Data = UpdateData<Master, Gather, Gradient, StateCount>;
    using A = Arithmetic<Master>;

  public:
    UpdateArrays(M& machine, const Data& data, const Offsets& at)
        : master_(machine, data.master, at[0]),
          gathered_(machine, data.gathered, at[1]),
          gradient_(machine, data.gradient, at[2]) {
        for (std::size_t s = 0; s < StateCount; ++s) { states_.push_back({machine, data.states[s], at[3 + s]}); }
    }

    rules::UpdateSpans<Master, Gather, Gradient, StateCount> spans() const {
        rules::UpdateSpans<Master, Gather, Gradient, StateCount> all{
            master_.span(), gathered_.span(), gradient_.view(), {}};
        for (std::size_t s = 0; s < StateCount; ++s) { all.states[s] = states_[s].span(); }
        return all;
    }
    void check_equal(const Data& expected) const {
        CHECK(same_bits(master_.values(), expected.master));
        CHECK(same_bits(gathered_.values(), expected.gathered));
        CHECK(same_bits(gradient_.values(), expected.gradient));
        for (std::size_t s = 0; s < StateCount; ++s) { CHECK(same_bits(states_[s].values(), expected.states[s])); }
    }

  private:
    Array<Master, M> master_;
    Array<Gather, M> gathered_;
    Array<Gradient, M> gradient_;
    std::vector<Array<A, M>> states_;
};

template <class Master, class Gather, class Gradient, class M, class Case>
void check_update_of(M& machine, const Case& optimizer, std::size_t size, const Offsets& at,
                     const std::vector<rules::UpdateRange>& runs, std::uint32_t skip) {
    machine.clear();
    const auto updates = optimizer.template updates<Arithmetic<Master>>();
    UpdateData<Master, Gather, Gradient, Case::state_count> data(size);
    const UpdateArrays<M, Master, Gather, Gradient, Case::state_count> arrays(machine, data, at);
    const auto runs_there = array(machine, runs);
    const auto updates_there = array(machine, updates);
    const auto skip_there = array(machine, std::vector<std::uint32_t>{skip});
    M::Kernels::update(machine.stream(), runs_there.view(), updates_there.view().data(), skip_there.view().data(),
                       arrays.spans());
    if (skip == 0) { data.step(runs, updates); }
    arrays.check_equal(data);
}

/// The master itself gathered: the span is empty.
template <class T, class M, class Case>
void check_update_in_master(M& machine, const Case& optimizer) {
    machine.clear();
    const std::size_t size = 100;
    const auto updates = optimizer.template updates<Arithmetic<T>>();
    UpdateData<T, T, T, Case::state_count> data(size);
    const UpdateArrays<M, T, T, T, Case::state_count> arrays(machine, data, {{2}});
    const std::vector<rules::UpdateRange> runs{{0, 40, 0}, {43, size, 2}};
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
template <class Master, class Gather, class Gradient, class M, class Case>
void check_update_as_host(M& machine, const Case& optimizer) {
    for (const std::size_t size : sizes()) {
        for (const auto& runs : runs_of(size)) {
            machine.clear();
            const auto updates = optimizer.template updates<Arithmetic<Master>>();
            UpdateData<Master, Gather, Gradient, Case::state_count> data(size);
            const UpdateArrays<M, Master, Gather, Gradient, Case::state_count> arrays(machine, data, {{0}});
            const std::uint32_t skip = 0;
            const auto runs_there = array(machine, runs);
            const auto updates_there = array(machine, updates);
            const auto skip_there = array(machine, std::vector<std::uint32_t>{skip});
            auto there = arrays.spans();
            auto here = data.spans();
            // The master is then what is gathered.
            if constexpr (std::is_same_v<Master, Gather>) { there.gathered = here.gathered = {}; }
            M::Kernels::update(machine.stream(), runs_there.view(), updates_there.view().data(),
                               skip_there.view().data(), there);
            test::EnqueuedKernels<shardkit::Stream>::update(shardkit::Stream{}, runs, updates.data(), &skip, here);
            arrays.check_equal(data);
        }
    }
}

/// Some neighbours of a table of five updates, in one launch: those and no others are made, whatever their sizes.
template <class M, class Case>
void check_update_batch(M& machine, const Case& optimizer, std::size_t first, std::size_t last) {
    using Data = UpdateData<float, bf16, float, Case::state_count>;
    machine.clear();
    const auto updates = optimizer.template updates<float>();
    const auto updates_there = array(machine, updates);
    const auto skip = array(machine, std::vector<std::uint32_t>{0});
    std::vector<Data> data;
    std::vector<UpdateArrays<M, float, bf16, float, Case::state_count>> arrays;
    std::vector<std::vector<rules::UpdateRange>> runs;
    std::vector<Array<rules::UpdateRange, M>> runs_there;
    for (const std::size_t size : {1003U, 1U, 70U, 128U, 333U}) {
        data.emplace_back(size);
        arrays.emplace_back(machine, data.back(), Offsets{{data.size()}});
        runs.push_back(runs_of(size).back());
        runs_there.push_back(array(machine, runs.back()));
    }
    const auto entry_of = [&](std::size_t i) {
        return M::Kernels::update_entry(runs_there[i].view(), updates_there.view().data(), skip.view().data(),
                                        arrays[i].spans());
    };
    std::vector<decltype(entry_of(0))> entries;
    std::vector<std::uint64_t> ends{0};
    for (std::size_t i = 0; i < data.size(); ++i) {
        entries.push_back(entry_of(i));
        CHECK(entries.back().end % 32 == 0);
        entries.back().end += ends.back();
        ends.push_back(entries.back().end);
    }
    // Bytes: an entry may have padding, which an Array would compare.
    auto* const there = reinterpret_cast<decltype(entry_of(0))*>(machine.take(entries.size() * sizeof(entries[0])));
    M::Kernels::copy_in(machine.stream(), std::span<const decltype(entry_of(0))>(entries),
                        std::span(there, entries.size()));
    M::Kernels::update_batch(
        machine.stream(),
        engine::LaunchBatch<decltype(entry_of(0))>{
            std::span<const decltype(entry_of(0))>(there + first, last - first), ends[first], ends[last]});
    for (std::size_t i = 0; i < data.size(); ++i) {
        if (i >= first && i < last) { data[i].step(runs[i], updates); }
        arrays[i].check_equal(data[i]);
    }
}

template <class M, class Case>
void check_update(M& machine, const Case& optimizer) {
    SUBCASE("every size, start and way to cut into runs") {
        for (const std::size_t size : sizes()) {
            for (const Offsets& at : offsets()) {
                for (const auto& runs : runs_of(size)) {
                    check_update_of<float, float, float>(machine, optimizer, size, at, runs, 0);
                    check_update_of<float, bf16, float>(machine, optimizer, size, at, runs, 0);
                }
            }
        }
    }
    SUBCASE("every precision") {
        each_precision([&]<class Master, class Gather, class Gradient>(Type<Master>, Type<Gather>, Type<Gradient>) {
            for (const Offsets& at : offsets()) {
                check_update_of<Master, Gather, Gradient>(machine, optimizer, 100, at, runs_of(100).back(), 0);
                check_update_of<Master, Gather, Gradient>(machine, optimizer, 67, at, runs_of(67).front(), 0);
            }
        });
    }
    SUBCASE("skipped") {
        each_precision([&]<class Master, class Gather, class Gradient>(Type<Master>, Type<Gather>, Type<Gradient>) {
            check_update_of<Master, Gather, Gradient>(machine, optimizer, 100, {{0}}, runs_of(100).front(), 1);
            check_update_of<Master, Gather, Gradient>(machine, optimizer, 9, {{1}}, runs_of(9).front(), 0xffffffffU);
        });
    }
    SUBCASE("the master itself gathered") {
        each_floating([&]<class T>(Type<T>) { check_update_in_master<T>(machine, optimizer); });
    }
    SUBCASE("as on the host") {
        check_update_as_host<float, float, float>(machine, optimizer);
        check_update_as_host<float, bf16, float>(machine, optimizer);
        check_update_as_host<float, fp16, fp16>(machine, optimizer);
        check_update_as_host<double, double, double>(machine, optimizer);
    }
    SUBCASE("batches") {
        for (std::size_t first = 0; first < 5; ++first) {
            for (std::size_t last = first + 1; last <= 5; ++last) {
                check_update_batch(machine, optimizer, first, last);
            }
        }
    }
}

}  // namespace shardkit::test
