// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace shardkit::detail {

/// A vector of the library's own objects that costs a compiler little: without optimization, g++ makes about sixty
/// functions of a std::vector of one more type, and at most ten of this. Its iterators are pointers, and what it does
/// not have nobody here needs. A class that refers to T before T is complete keeps a std::vector.
template <class T>
class List {
  public:
    using value_type = T;

    [[gnu::always_inline]] List() noexcept {}  // NOLINT(modernize-use-equals-default): no function of its own
    [[gnu::always_inline]] explicit List(std::size_t count) : List() { resize(count); }
    [[gnu::always_inline]] List(std::initializer_list<T> values) : List() { append(values.begin(), values.end()); }
    [[gnu::always_inline]] List(const T* first, const T* last) : List() { append(first, last); }
    [[gnu::always_inline]] List(const List& other) : List() { append(other.data_, other.data_ + other.size_); }
    [[gnu::always_inline]] List(List&& other) noexcept { swap(other); }
    [[gnu::always_inline]] List& operator=(List other) noexcept {
        swap(other);
        return *this;
    }
    [[gnu::always_inline]] ~List() {
        if (data_ == nullptr) { return; }
        clear();
        ::operator delete(data_);
    }

    [[gnu::always_inline]] std::size_t size() const noexcept { return size_; }
    [[gnu::always_inline]] bool full() const noexcept { return size_ == capacity_; }
    [[gnu::always_inline]] bool empty() const noexcept { return size_ == 0; }
    [[gnu::always_inline]] T* data() noexcept { return data_; }
    [[gnu::always_inline]] const T* data() const noexcept { return data_; }
    [[gnu::always_inline]] T* begin() noexcept { return data_; }
    [[gnu::always_inline]] T* end() noexcept { return data_ + size_; }
    [[gnu::always_inline]] const T* begin() const noexcept { return data_; }
    [[gnu::always_inline]] const T* end() const noexcept { return data_ + size_; }
    [[gnu::always_inline]] T& operator[](std::size_t i) noexcept { return data_[i]; }
    [[gnu::always_inline]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }
    [[gnu::always_inline]] T& front() noexcept { return *data_; }
    [[gnu::always_inline]] const T& front() const noexcept { return *data_; }
    [[gnu::always_inline]] T& back() noexcept { return data_[size_ - 1]; }
    [[gnu::always_inline]] const T& back() const noexcept { return data_[size_ - 1]; }
    std::span<const T> span() const noexcept { return {data_, size_}; }

    void reserve(std::size_t count) {
        if (count <= capacity_) { return; }
        static_assert(std::is_nothrow_move_constructible_v<T> && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
        constexpr std::size_t bytes = sizeof(T);  // NOLINT(bugprone-sizeof-expression): T may be a pointer
        T* const moved = static_cast<T*>(::operator new(count* bytes));
        if constexpr (std::is_trivially_copyable_v<T>) {
            if (size_ > 0) { std::memcpy(static_cast<void*>(moved), data_, size_ * bytes); }
        } else {
            for (std::size_t i = 0; i < size_; ++i) {
                ::new (static_cast<void*>(moved + i)) T(static_cast<T&&>(data_[i]));
                data_[i].~T();
            }
        }
        ::operator delete(data_);
        data_ = moved;
        capacity_ = count;
    }
    T& push_back(T value) {
        if (full()) { reserve(2 * size_ + 1); }
        ::new (static_cast<void*>(data_ + size_)) T(static_cast<T&&>(value));
        return data_[size_++];
    }
    template <class... Values>
    [[gnu::always_inline]] T& emplace_back(Values&&... values) {
        return push_back(T(static_cast<Values&&>(values)...));
    }
    void append(const T* first, const T* last) {
        if (size_ == 0) { reserve(static_cast<std::size_t>(last - first)); }
        for (; first != last; ++first) { push_back(*first); }
    }
    void resize(std::size_t count) {
        while (size_ > count) { pop_back(); }
        reserve(count);
        for (; size_ < count; ++size_) { ::new (static_cast<void*>(data_ + size_)) T(); }
    }
    [[gnu::always_inline]] void pop_back() noexcept { data_[--size_].~T(); }
    [[gnu::always_inline]] void clear() noexcept {
        if constexpr (std::is_trivially_destructible_v<T>) {
            size_ = 0;
        } else {
            end_all();
        }
    }
    /// Removes each element of which `gone` is true, and keeps the order of the others.
    template <class Gone>
    void erase_if(const Gone& gone) {
        T* kept = data_;
        for (T* each = data_; each != end(); ++each) {
            if (gone(*each)) { continue; }
            if (kept != each) { *kept = static_cast<T&&>(*each); }
            ++kept;
        }
        while (end() != kept) { pop_back(); }
    }
    [[gnu::always_inline]] void swap(List& other) noexcept {
        T* const data = data_;
        data_ = other.data_;
        other.data_ = data;
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }
    friend bool operator==(const List& a, const List& b) {
        bool equal = a.size_ == b.size_;
        for (std::size_t i = 0; equal && i < a.size_; ++i) { equal = a.data_[i] == b.data_[i]; }
        return equal;
    }

  private:
    void end_all() noexcept {
        while (size_ > 0) { pop_back(); }
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace shardkit::detail
