// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/rank/rank.hpp>

#include "verbs.hpp"
#include "workload.hpp"

namespace benchmarks {

/// Returns a whole number as an element: rounded as the type rounds, or its lower bits.
template <shardkit::Element T>
T as_element(std::uint64_t number) noexcept {
    return static_cast<T>(static_cast<shardkit::Arithmetic<T>>(number));
}

/// Returns what no result is allowed to keep: unlike every value, except that one value of uint8 is the same.
template <shardkit::Element T>
T untouched() noexcept {
    T element{};
    std::memset(static_cast<void*>(&element), 0xa5, sizeof element);
    return element;
}

/// Returns n elements as a rank must have them: number(shape, i), or untouched where there is no number.
template <shardkit::Element T>
std::vector<T> elements(std::size_t n, NumberAt number, const Shape& shape) {
    std::vector<T> values(n);
    for (std::size_t i = 0; i < n; ++i) {
        const Number value = number(shape, i);
        values[i] = value ? as_element<T>(*value) : untouched<T>();
    }
    return values;
}

/// Counts how many elements are not those.
template <shardkit::Element T>
std::uint64_t count_wrong(std::span<const T> given, NumberAt number, const Shape& shape) {
    const std::vector<T> right = elements<T>(given.size(), number, shape);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < given.size(); ++i) { wrong += given[i] == right[i] ? 0U : 1U; }
    return wrong;
}

/// Times a verb over one element type and engine, whose results lie where `placement` says.
template <class V, class T, Placement placement>
class VerbWorkload final : public Workload {
    static constexpr bool in_place = placement == Placement::in_place;
    using Communicator = shardkit::Communicator;

  public:
    /// Makes the buffers, for calls on the communication stream.
    /// @throws std::bad_alloc, or what the engine throws where there is no memory
    VerbWorkload(shardkit::Rank& rank, const Communicator& group, const Shape& shape)
        : group_(group),
          shape_(shape),
          stream_(rank.communication_stream()),
          sent_(rank.template buffer<T>(in_place ? 0 : V::sent(shape))),
          received_(rank.template buffer<T>(in_place ? V::pieces(shape.ranks()) * shape.piece : V::received(shape))) {
    }

    void prepare() override {
        if constexpr (in_place) {
            put(received_.span(), &V::given_in_place);
        } else {
            put(sent_.span(), &V::given);
            put(received_.span(), [](const Shape&, std::size_t) { return Number(); });
        }
    }
    /// Makes calls that leave everything as it is all the same, and waits for them.
    void call(std::size_t times) override {
        const Given one = given();
        for (std::size_t i = 0; i < times; ++i) {
            call_with(one);
            asm volatile("" ::: "memory");
        }
        stream_.synchronize();
    }
    std::uint64_t count_wrong() override {
        std::vector<T> values(received_.span().size());
        shardkit::host::AnyKernels::copy_out(stream_, std::span<const T>(received_.span()), std::span<T>(values));
        if constexpr (in_place) {
            return benchmarks::count_wrong(std::span<const T>(values), &V::expected_in_place, shape_);
        } else {
            return benchmarks::count_wrong(std::span<const T>(values), &V::expected, shape_);
        }
    }

  private:
    using Given = VerbCall<Communicator, T>;

    Given given() const { return {group_, shape_, sent_.span(), received_.span(), stream_}; }
    void call_with(const Given& given) {
        if constexpr (in_place) {
            verb_.call_in_place(given);
        } else {
            verb_.call(given);
        }
    }
    void put(std::span<T> buffer, NumberAt number) {
        const std::vector<T> values = elements<T>(buffer.size(), number, shape_);
        shardkit::host::AnyKernels::copy_in(stream_, std::span<const T>(values), buffer);
    }

    Communicator group_;
    Shape shape_;
    shardkit::Stream stream_;
    V verb_;
    shardkit::HostBuffer<T> sent_;
    shardkit::HostBuffer<T> received_;
};

/// Times a verb whose results lie in a buffer of their own.
template <class V, class T>
using OutOfPlace = VerbWorkload<V, T, Placement::out_of_place>;
/// Times a verb whose results lie where its input is.
template <class V, class T>
using InPlace = VerbWorkload<V, T, Placement::in_place>;

}  // namespace benchmarks
