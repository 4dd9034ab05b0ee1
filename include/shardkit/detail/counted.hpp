// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace shardkit::detail {

template <class T>
void end_counted(void* object) noexcept {
    delete static_cast<T*>(object);
}

/// Makes an object that is shared, like std::make_shared. The type that counts is one for all objects, where g++
/// without optimization makes 46 functions of a std::make_shared of one more type.
template <class Object, class... Values>
std::shared_ptr<Object> make_counted(Values&&... values) {
    using T = std::remove_const_t<Object>;
    T* const made = new T(static_cast<Values&&>(values)...);
    const std::shared_ptr<void> counted(static_cast<void*>(made), &end_counted<T>);
    return {counted, made};
}

}  // namespace shardkit::detail
