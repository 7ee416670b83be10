//! Makes resources of the API of types with metadata.

/// Makes a type with a field `metadata` a resource of the API. The field is a [`Metadata`], or has methods `object` and
/// `object_mut` as well. `of_metadata` is true if only its metadata is read. Group, version, kind and plural follow. If
/// objects of several kinds are of the type, these are made of what tells the kinds apart: `by` gives it a name and a type.
macro_rules! resource {
    (
        $object:ty, $scope:ty, of_metadata: $of_metadata:literal, $($part:ident: $value:literal),+
    ) => {
        $crate::metadata::resource!(
            $object, $scope, of_metadata: $of_metadata, by none: (), $($part: $value),+
        );
    };
    (
        $object:ty, $scope:ty, of_metadata: $of_metadata:literal, by $by:ident: $type:ty,
        $($part:ident: $value:expr),+
    ) => {
        impl ::kube_core::Resource for $object {
            type DynamicType = $type;
            type Scope = $scope;

            fn metadata_api() -> bool {
                $of_metadata
            }

            $(fn $part($by: &$type) -> ::std::borrow::Cow<'_, str> {
                let _ = $by;
                $value.into()
            })+

            fn meta(&self) -> &::kube_core::ObjectMeta {
                self.metadata.object()
            }

            fn meta_mut(&mut self) -> &mut ::kube_core::ObjectMeta {
                self.metadata.object_mut()
            }
        }
    };
}

pub(crate) use resource;
