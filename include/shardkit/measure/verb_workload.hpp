// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/comm/list_verbs.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/measure/verbs.hpp>
#include <shardkit/measure/workload.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit::measure {

/// Returns a whole number as an element: rounded as the type rounds, or its lower bits.
template <Element T>
T as_element(std::uint64_t number) noexcept {
    return static_cast<T>(static_cast<Arithmetic<T>>(number));
}

/// Returns what no result is allowed to keep: unlike every value, except that one value of uint8 is the same.
template <Element T>
T untouched() noexcept {
    T element{};
    std::memset(static_cast<void*>(&element), 0xa5, sizeof element);
    return element;
}

/// Returns n elements as a rank must have them: number(shape, i), or untouched where there is no number.
template <Element T>
std::vector<T> elements(std::size_t n, NumberAt number, const Shape& shape) {
    std::vector<T> values(n);
    for (std::size_t i = 0; i < n; ++i) {
        const Number value = number(shape, i);
        values[i] = value ? as_element<T>(*value) : untouched<T>();
    }
    return values;
}

/// Counts how many elements are not those.
template <Element T>
std::uint64_t count_wrong(std::span<const T> given, NumberAt number, const Shape& shape) {
    const std::vector<T> right = elements<T>(given.size(), number, shape);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < given.size(); ++i) { wrong += given[i] == right[i] ? 0U : 1U; }
    return wrong;
}

/// Is a workload whose calls can be started without waiting for them: part of a pattern.
class StartedWorkload : public Workload {
  public:
    /// Gives the engine one call.
    virtual void start() = 0;
};

/// Is what the workloads of verbs over one element type and engine have in common.
template <class Engine, class T>
class TypedWorkload : public StartedWorkload {
  protected:
    using Communicator = typename Engine::Communicator;
    using Stream = typename Engine::Stream;

    TypedWorkload(const Communicator& group, Shape shape, const Stream& stream)
        : group_(group), shape_(std::move(shape)), stream_(stream) {}

    void put(std::span<T> buffer, NumberAt number) {
        const std::vector<T> values = elements<T>(buffer.size(), number, shape_);
        Engine::Kernels::copy_in(stream_, std::span<const T>(values), buffer);
    }
    std::uint64_t wrong_in(std::span<const T> buffer, NumberAt expected) {
        std::vector<T> values(buffer.size());
        Engine::Kernels::copy_out(stream_, buffer, std::span<T>(values));
        return measure::count_wrong(std::span<const T>(values), expected, shape_);
    }
    /// Makes calls that leave everything as it is all the same, and waits for them.
    template <class Once>
    void repeat(std::size_t times, const Once& once) {
        for (std::size_t i = 0; i < times; ++i) {
            once();
            asm volatile("" ::: "memory");
        }
        stream_.synchronize();
    }

    Communicator group_;
    Shape shape_;
    Stream stream_;
};

/// Times a verb whose results lie in a buffer of their own.
template <class Engine, class V, class T>
class OutOfPlace final : public TypedWorkload<Engine, T> {
    using Base = TypedWorkload<Engine, T>;
    using Given = VerbCall<typename Engine::Communicator, T>;

  public:
    /// Makes the buffers.
    /// @throws std::bad_alloc, or what the engine throws where there is no memory
    OutOfPlace(Context<Engine>& context, const typename Engine::Communicator& group, const Shape& shape,
               const typename Engine::Stream& stream, V verb = {})
        : Base(group, shape, stream),
          verb_(std::move(verb)),
          sent_(context.template buffer<T>(V::sent(shape))),
          received_(context.template buffer<T>(V::received(shape))) {}
    /// Makes them for calls on the communication stream.
    OutOfPlace(Context<Engine>& context, const typename Engine::Communicator& group, const Shape& shape)
        : OutOfPlace(context, group, shape, context.communication_stream()) {}

    void prepare() override {
        this->put(sent_.span(), &V::given);
        this->put(received_.span(), [](const Shape&, std::size_t) { return Number(); });
    }
    void start() override { verb_.call(given()); }
    void call(std::size_t times) override {
        this->repeat(times, [this, one = given()] { verb_.call(one); });
    }
    std::uint64_t count_wrong() override { return this->wrong_in(received_.span(), &V::expected); }
    /// Returns its buffers as an entry of a list.
    ListedTensor<T> listed() const { return {sent_.span(), received_.span()}; }

  private:
    Given given() const { return {this->group_, this->shape_, sent_.span(), received_.span(), this->stream_}; }

    V verb_;
    typename Engine::template Buffer<T> sent_;
    typename Engine::template Buffer<T> received_;
};

/// Times a verb whose results lie where its input is.
template <class Engine, class V, class T>
class InPlace final : public TypedWorkload<Engine, T> {
    using Base = TypedWorkload<Engine, T>;
    using Given = VerbCall<typename Engine::Communicator, T>;

  public:
    /// Makes the buffer.
    /// @throws std::bad_alloc, or what the engine throws where there is no memory
    InPlace(Context<Engine>& context, const typename Engine::Communicator& group, const Shape& shape,
            const typename Engine::Stream& stream, V verb = {})
        : Base(group, shape, stream),
          verb_(std::move(verb)),
          buffer_(context.template buffer<T>(V::pieces(shape.ranks()) * shape.piece)) {}
    /// Makes it for calls on the communication stream.
    InPlace(Context<Engine>& context, const typename Engine::Communicator& group, const Shape& shape)
        : InPlace(context, group, shape, context.communication_stream()) {}

    void prepare() override { this->put(buffer_.span(), &V::given_in_place); }
    void start() override { verb_.call_in_place(given()); }
    void call(std::size_t times) override {
        this->repeat(times, [this, one = given()] { verb_.call_in_place(one); });
    }
    std::uint64_t count_wrong() override { return this->wrong_in(buffer_.span(), &V::expected_in_place); }

  private:
    Given given() const { return {this->group_, this->shape_, {}, buffer_.span(), this->stream_}; }

    V verb_;
    typename Engine::template Buffer<T> buffer_;
};

}  // namespace shardkit::measure
