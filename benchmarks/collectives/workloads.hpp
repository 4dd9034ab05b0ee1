// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/rank/context.hpp>

#include "../../examples/common/input_error.hpp"
#include "../common/workload.hpp"
#include "elements.hpp"
#include "options.hpp"
#include "verbs.hpp"

namespace benchmarks {

/// What the workloads of an engine have in common for one element type.
template <class Engine, class T>
class TypedWorkload : public Workload {
  protected:
    using Communicator = typename Engine::Communicator;
    using Stream = typename Engine::Stream;

    TypedWorkload(shardkit::Context<Engine>& context, const Communicator& group, Shape shape)
        : group_(group), shape_(std::move(shape)), stream_(context.communication_stream()) {}

    void put(std::span<T> buffer, NumberAt number) {
        const std::vector<T> values = elements<T>(buffer.size(), number, shape_);
        Engine::Kernels::copy_in(stream_, std::span<const T>(values), buffer);
    }
    std::uint64_t wrong_in(std::span<const T> buffer, NumberAt expected) {
        std::vector<T> values(buffer.size());
        Engine::Kernels::copy_out(stream_, buffer, std::span<T>(values));
        return benchmarks::count_wrong(std::span<const T>(values), expected, shape_);
    }
    /// Calls that leave everything as it is are made all the same.
    static void keep() noexcept { asm volatile("" ::: "memory"); }

    Communicator group_;
    Shape shape_;
    Stream stream_;
};

/// A verb whose results lie in a buffer of their own.
template <class Engine, class V, class T>
class OutOfPlace final : public TypedWorkload<Engine, T> {
    using Base = TypedWorkload<Engine, T>;

  public:
    OutOfPlace(shardkit::Context<Engine>& context, const typename Engine::Communicator& group, const Shape& shape)
        : Base(context, group, shape),
          sent_(context.template buffer<T>(V::sent(shape))),
          received_(context.template buffer<T>(V::received(shape))) {}

    void prepare() override {
        this->put(sent_.span(), &V::given);
        this->put(received_.span(), [](const Shape&, std::size_t) { return Number(); });
    }
    void call(std::size_t times) override {
        const Call<typename Engine::Communicator, T> one{this->group_, this->shape_, sent_.span(), received_.span(),
                                                         this->stream_};
        for (std::size_t i = 0; i < times; ++i) {
            V::call(one);
            this->keep();
        }
        this->stream_.synchronize();
    }
    std::uint64_t count_wrong() override { return this->wrong_in(received_.span(), &V::expected); }

  private:
    typename Engine::template Buffer<T> sent_;
    typename Engine::template Buffer<T> received_;
};

/// A verb whose results lie where its input is.
template <class Engine, class V, class T>
class InPlace final : public TypedWorkload<Engine, T> {
    using Base = TypedWorkload<Engine, T>;

  public:
    InPlace(shardkit::Context<Engine>& context, const typename Engine::Communicator& group, const Shape& shape)
        : Base(context, group, shape), buffer_(context.template buffer<T>(V::pieces(shape.ranks()) * shape.piece)) {}

    void prepare() override { this->put(buffer_.span(), &V::given_in_place); }
    void call(std::size_t times) override {
        const Call<typename Engine::Communicator, T> one{
            this->group_, this->shape_, {}, buffer_.span(), this->stream_};
        for (std::size_t i = 0; i < times; ++i) {
            V::call_in_place(one);
            this->keep();
        }
        this->stream_.synchronize();
    }
    std::uint64_t count_wrong() override { return this->wrong_in(buffer_.span(), &V::expected_in_place); }

  private:
    typename Engine::template Buffer<T> buffer_;
};

/// The collective with its buffers.
/// @throws InputError when the engine lacks the verb for these elements; std::bad_alloc
/// @pre     the verb has this placement
template <class Engine>
std::unique_ptr<Workload> make_workload(shardkit::Context<Engine>& context,
                                        const typename Engine::Communicator& group, VerbKind verb, DataType type,
                                        Placement placement, const Shape& shape) {
    using C = typename Engine::Communicator;
    std::unique_ptr<Workload> made;
    const auto make = [&]<class V, class T>(V, std::type_identity<T>) {
        if constexpr (V::template offered<C, T>) {
            if constexpr (V::in_place) {
                if (placement == Placement::in_place) {
                    made = std::make_unique<InPlace<Engine, V, T>>(context, group, shape);
                }
            }
            if constexpr (V::out_of_place) {
                if (placement == Placement::out_of_place) {
                    made = std::make_unique<OutOfPlace<Engine, V, T>>(context, group, shape);
                }
            }
        }
    };
    with_verb(verb, [&]<class V>(V chosen) {
        if constexpr (V::moves_data) {
            with_type(type, [&](auto element) { make(chosen, element); });
        } else {
            make(chosen, std::type_identity<std::uint8_t>{});
        }
    });
    if (!made) {
        throw program::InputError("--engine " + std::string(Engine::name) + ": has no " +
                                  std::string(verb_names[static_cast<std::size_t>(verb)]) + " of " +
                                  std::string(type_names[static_cast<std::size_t>(type)]) +
                                  ": expected another --verb or --datatype");
    }
    return made;
}

}  // namespace benchmarks
